"""Reference implementations in a graph: taken only where nothing faster can be had, in any layout."""

from __future__ import annotations

import numpy as np

from poolrt import Graph
from poolrt.graph.lower import lower
from poolrt.graph.wire_parser import parse
from poolrt.workers.engines.target import cpu_target


def implementations(graph: Graph) -> list[str]:
    return [pd.impl_name() for pd in lower(parse(graph.to_wire()[0]), {"cpu": cpu_target()}).primitives]


def test_a_reorder_and_a_fast_implementation_go_before_a_reference() -> None:
    # Given channels in blocks of 16 joined where no block begins, which only row-major memory can do fast
    g = Graph()
    x = g.input("x", (2, 3, 8, 8), "float32")
    first, second = (g.convolution(x, np.ones((count, 3, 3, 3), np.float32)) for count in (8, 16))
    g.output("y", g.eltwise(g.concat([first, second], axis=1), "relu"))
    # When / Then there is a reorder, and no reference
    names = implementations(g)
    assert "native:concat" in names
    assert not any(name.startswith("ref:") for name in names)


def test_what_only_a_reference_can_do_is_computed_by_it() -> None:
    g = Graph()
    x = g.input("x", (4, 5), "float32")
    g.output("y", g.binary(g.eltwise(x, "relu"), x, "floor_div"))
    assert implementations(g) == ["native:eltwise", "ref:binary"]
