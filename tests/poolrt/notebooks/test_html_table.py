"""Tables in notebooks: escaped, and of bounded size."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np

import poolrt
from poolrt.notebooks.html_table import shape_of, table
from poolrt.notebooks.pool_tables import tables


class _Reader(HTMLParser):
    """Reads the texts of the cells, and fails if elements are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.kinds: set[str] = set()
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.kinds.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_every_text_of_a_table_is_escaped_and_bounded() -> None:
    evil = "<script>alert('x')</script>&amp;\""
    read = _Reader(table(evil, (evil, "b"), [(evil, 5), ("z" * 10_000, None)]))
    assert read.kinds == {"div", "table", "thead", "tbody", "tr", "th", "td"}
    assert read.texts == [evil, evil, "b", evil, "5", "z" * 117 + "...", "None"]


def test_a_long_table_shows_its_first_and_last_rows() -> None:
    read = _Reader(table("long", ("number",), ([str(number)] for number in range(20_000))))
    assert read.texts[2:] == [*map(str, range(40)), "19950 more", *map(str, range(19_990, 20_000))]
    assert len(_Reader(table("short", ("number",), ([str(number)] for number in range(50)))).texts) == 52


def test_a_graph_shows_its_nodes_in_order() -> None:
    graph = poolrt.Graph("<b>net</b>", engine="opencl")
    x = graph.input("x<", (2, 3), "int32")
    weights = np.ones((1, 1, 3, 4, 5), np.float32), np.ones((1, 1, 5, 4, 5), np.float32)
    values, state, _ = graph.lstm(graph.input("s", (4, 2, 3)), *weights, name="cell")
    graph.output("y", graph.eltwise(x, "relu", name="act"))
    graph.output("v", values)
    texts = _Reader(graph._repr_html_()).texts
    assert texts[:5] == ["Graph <b>net</b>, engine opencl", "name", "operation", "shape", "dtype"]
    all_three = ", ".join(map(shape_of, (values.shape, state.shape, state.shape)))
    assert [tuple(texts[at : at + 4]) for at in range(5, len(texts), 4)] == [
        ("x<", "input", "2x3", "int32"),
        ("s", "input", "4x2x3", "float32"),
        ("cell", "lstm", all_three, "float32"),
        ("act", "eltwise", "2x3", "int32"),
        ("y", "output", "2x3", "int32"),
        ("v", "output", "4x2x5", "float32"),
    ]
    assert _Reader(poolrt.Graph("empty")._repr_html_()).texts[0] == "Graph empty, engine cpu"


def test_the_statistics_of_a_pool_are_readable() -> None:
    facts = {
        "workers": [{"pid": 7, "state": "busy", "runs": 3, "rss_bytes": 3 << 20, "numba_imported": False}],
        "queue": {"waiting": 0, "in_flight": 0, "creating": 0},
        "arena": {"bytes": 64 << 20, "used": 1 << 20},
        "cache": {
            "hits": {"files": 6, "prebuilt": 0, "redis": 0},
            "misses": 2,
            "late": 0,
            "seconds_saved": 8.138926,
            "tiers": {"files": {"hits": 6, "misses": 3}, "redis": {"hits": 0}},
        },
        "clients": 1,
        "workers_lost": 2,
    }
    assert _Reader(tables(facts)).texts == [
        *(
            "Pool, workers: 1, lost before: 2, clients: 1",
            "pid",
            "state",
            "runs",
            "memory",
            "7",
            "busy",
            "3",
            "3.0 MiB",
        ),
        *("part", "now", "queue", "empty", "arena", "bytes 64.0 MiB, used 1.0 MiB"),
        *("cache", "misses 2, seconds_saved 8.1", "cache, hits", "files 6", "cache, tiers, files", "hits 6, misses 3"),
    ]
