"""Notebooks: a kernel of IPython that runs cells, and the messages that its frontend gets.

The package ipywidgets is not needed, and is not installed where these tests run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .notebooks import Kernel, started, texts

pytest.importorskip("ipykernel", reason="ipykernel is not installed")

pytestmark = pytest.mark.slow

_GRAPH = """
import os, sys, time
import numpy as np
import poolrt

def graph(rows, name="net"):
    g = poolrt.Graph(name)
    x = g.input("x", (rows, 32))
    h = g.eltwise(g.matmul(x, np.ones((32, 16), np.float32)), "tanh")
    g.output("y", g.softmax(h, axis=-1))
    return g
"""


@pytest.fixture(scope="module")
def kernel(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel with a pool of two workers and an empty cache."""
    home: Path = tmp_path_factory.mktemp("kernel")
    own = {"POOLRT_HOME": str(home / "poolrt"), "POOLRT_REDIS_URL": settings["redis_url"], "IPYTHONDIR": str(home)}
    with started({**own, "JUPYTER_RUNTIME_DIR": str(home), "POOLRT_THREADS": "1"}) as found:
        found.run(_GRAPH + "pool = poolrt.Pool(workers=2, arena_bytes=1 << 26)")
        yield found
        found.run("pool.close()")


def test_a_cold_load_shows_one_line_that_is_updated_and_a_warm_one_none(kernel: Kernel) -> None:
    messages = kernel.run("model = pool.load(graph(3, '<net>'))")
    shown = [m for m in messages if m["msg_type"] in ("display_data", "update_display_data")]
    assert shown[0]["msg_type"] == "display_data"
    assert len(shown) > 1
    assert {m["msg_type"] for m in shown[1:]} == {"update_display_data"}
    assert len({m["content"]["transient"]["display_id"] for m in shown}) == 1
    first, last = (m["content"]["data"] for m in (shown[0], shown[-1]))
    assert first["text/plain"].startswith("kernels of <net>: 0 of ")
    total = first["text/plain"].split()[5].rstrip(",")
    assert last["text/plain"].startswith(f"kernels of <net>: {total} of {total}, ")
    assert "&lt;net&gt;" in last["text/html"]
    assert f'<progress value="{total}" max="{total}">' in last["text/html"]
    # Nothing else is shown, and nothing of rich or its widgets was needed
    assert not [m for m in messages if m["msg_type"] == "stream"]
    kernel.run("assert not {'rich', 'ipywidgets'} & set(sys.modules)")
    warm = kernel.run("pool.load(graph(3, '<net>')); pool.load(graph(4), progress=False);")
    assert not [m for m in warm if m["msg_type"] not in ("status", "execute_input")]


def test_prints_of_workers_are_prints_of_the_cell_that_called(kernel: Kernel) -> None:
    function = """
def speak(n, path):
    import os, sys, time
    print("begun", n)
    print("trouble", n, file=sys.stderr)
    while path and not os.path.exists(path):
        time.sleep(0.01)
    print("ended", n)
"""
    messages = kernel.run(function + "list(pool.map(speak, [5], ['']))")
    assert texts(messages, "stdout") == "begun 5\nended 5\n"
    assert texts(messages, "stderr") == "trouble 5\n"
    # Given a function that goes on after its cell
    path = "os.environ['POOLRT_HOME'] + '/end'"
    called = kernel.begin(f"future = pool.submit(speak, 6, {path})")
    kernel.finish(called)
    other = kernel.run(f"open({path}, 'w').close(); future.result()")
    assert texts(kernel.below(called), "stdout") == "begun 6\nended 6\n"
    assert texts(other, "stdout") == ""
    # And what another program writes is shown too
    kernel.begin("pool.submit(os.system, 'echo program').result();")
    shown = kernel.read(lambda m: m["msg_type"] == "stream")
    assert shown["content"] == {"name": "stderr", "text": "program\n"}


def test_the_example_runs_from_top_to_bottom(kernel: Kernel) -> None:
    example = Path(__file__).parents[3] / "examples" / "first_steps.ipynb"
    cells = json.loads(example.read_text("utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells), "the example has no outputs of some machine"
    # The kernel has a pool, which the example replaces
    kernel.run("pool.close()")
    below = [kernel.run("".join(cell["source"])) for cell in cells if cell["cell_type"] == "code"]
    kernel.run("pool = poolrt.Pool(workers=2, arena_bytes=1 << 26)")
    results = [[m["content"]["data"] for m in messages if m["msg_type"] == "execute_result"] for messages in below]
    assert [len(each) for each in results] == [1, 1, 1, 1, 1, 0]
    assert (results[2][0]["text/plain"], results[3][0]["text/plain"]) == ("((64, 10), True)", "3.1")
    assert sorted(texts(below[3], "stdout").splitlines())[0].startswith("seed 0: 3.1")
    assert len(texts(below[3], "stdout").splitlines()) == 4
    assert [m["msg_type"] for m in below[1] if m["msg_type"].endswith("display_data")][:2] == [
        "display_data",
        "update_display_data",
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("graph(3)", ["matmul_0", "eltwise", "3x16", "float32"]),
        ("pool.load(graph(3), progress=False)", ["loaded in", "input", "3x32", "total"]),
        ("pool", ["Pool", "idle", "queue", "arena", "cache"]),
    ],
)
def test_graphs_models_and_pools_are_shown_as_tables(kernel: Kernel, value: str, words: list[str]) -> None:
    (shown,) = [m["content"]["data"] for m in kernel.run(value) if m["msg_type"] == "execute_result"]
    assert [word for word in words if word not in shown["text/html"]] == []


def test_an_interrupted_load_leaves_a_pool_that_works(kernel: Kernel) -> None:
    cell = kernel.begin("pool.load(graph(5))")
    kernel.read(lambda m: m["msg_type"] == "display_data")
    kernel.interrupt(cell)
    last = [m for m in kernel.below(cell) if m["msg_type"] == "update_display_data"][-1]
    assert last["content"]["data"]["text/plain"].endswith(", stopped")
    kernel.run("assert pool.load(graph(5)).run(x=np.ones((5, 32), np.float32))['y'].shape == (5, 16)")


@pytest.mark.parametrize(
    "work",
    [
        "while True: model.run(x=np.ones((3, 32), np.float32))",
        "while True: list(model.map({'x': np.ones((3, 32), np.float32)} for _ in range(100)))",
        "while True: list(pool.map(abs, range(100)))",
        "pool.submit(time.sleep, 1).result()",
    ],
)
def test_an_interrupted_run_leaves_a_pool_that_works_or_says_that_it_is_closed(kernel: Kernel, work: str) -> None:
    kernel.run("model = pool.load(graph(3), progress=False)")
    cell = kernel.begin(f"print('begun')\n{work}")
    kernel.read(lambda m: m["msg_type"] == "stream" and m["content"]["text"] == "begun\n")
    time.sleep(0.2)  # at a moment that no test chooses
    kernel.interrupt(cell)
    kernel.run("""
try:
    y = model.run(x=np.ones((3, 32), np.float32))["y"]
except poolrt.errors.PoolClosed as error:
    assert "interrupted" in str(error)
    pool.close()
    pool = poolrt.Pool(workers=2, arena_bytes=1 << 26)
    y = pool.load(graph(3)).run(x=np.ones((3, 32), np.float32))["y"]
assert y.shape == (3, 16) and pool.submit(abs, -1).result() == 1
""")
