"""Shapes inferred anew: the same as if the graph had been built with them."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt import Graph, GraphError
from poolrt.graph.ir import GraphIR
from poolrt.graph.reshaping import infer_for_inputs
from poolrt.workers.desc import MemoryDesc

from .every_operation import OPERATIONS, array, graph_of

#: Operations whose constants say how many samples there are, or that cut a part of given size out of the batch.
BOUND_TO_A_BATCH = {
    *("given statistics", "expand", "slice", "tile", "gather_nd", "rnn", "lstm", "gru", "gru linear before reset"),
    "non_max_suppression",
}
BATCHED = sorted(OPERATIONS.keys() - BOUND_TO_A_BATCH)


def shapes(ir: GraphIR) -> dict[int, MemoryDesc]:
    """Return what nodes compute."""
    return {value: ir.values[value] for node in ir.nodes for value in node.outputs}


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_shapes_that_a_graph_was_built_with_give_the_same_graph(name: str) -> None:
    ir = graph_of(name).to_ir()
    assert infer_for_inputs(ir, [OPERATIONS[name][0]]) == ir


@pytest.mark.parametrize("name", BATCHED)
def test_another_batch_gives_the_graph_that_would_have_been_built_with_it(name: str) -> None:
    dims, build = OPERATIONS[name]
    wanted = (dims[0] + 3, *dims[1:])
    g = Graph(name)
    results = build(g, g.input("x", wanted))
    for number, value in enumerate(results if isinstance(results, tuple) else (results,)):
        g.output(f"y{number}", value)
    assert shapes(infer_for_inputs(graph_of(name).to_ir(), [wanted])) == shapes(g.to_ir())


def test_views_that_keep_dimensions_follow_them() -> None:
    g = Graph("g")
    x, y = g.input("x", (2, 5, 6)), g.input("y", (6,))
    g.output("product", g.matmul(x, array(6, 4), array(4)))
    g.output("kept", g.reshape(x, (0, -1)))
    g.output("squeezed", g.squeeze(g.unsqueeze(x, (0, 3)), 0))
    g.output("reduced", g.reduction(x, "max", 1, keep_dims=False))
    g.output("ranked", g.binary(x, y, "add"))
    ir = infer_for_inputs(g.to_ir(), [(5, 2, 6), (1,)])
    assert {name: ir.values[value].dims for name, value in ir.outputs} == {
        "product": (5, 2, 4),
        "kept": (5, 12),
        "squeezed": (5, 2, 1, 6),
        "reduced": (5, 6),
        "ranked": (5, 2, 6),
    }


def test_operands_that_do_not_go_together_any_more_are_named() -> None:
    g = Graph("g")
    x = g.input("x", (4, 6))
    g.output("y", g.binary(g.reshape(x, (2, 12), name="two"), array(2, 12), "add", name="joined"))
    with pytest.raises(GraphError, match=r"reshape 'two', for inputs x \(3, 5\): shape: \(3, 5\) does not reshape"):
        infer_for_inputs(g.to_ir(), [(3, 5)])
    g = Graph("g")
    x = g.input("x", (4, 6), "int8")
    scales = np.ones((1, 6), np.float32)
    g.output("y", g.reorder(x, dtype="float32", scales={"src": scales}, name="scaled"))
    infer_for_inputs(g.to_ir(), [(9, 6)])
    with pytest.raises(GraphError, match=r"reorder 'scaled', .*: scales: expect \(7,\) for argument 1, got \(6,\)"):
        infer_for_inputs(g.to_ir(), [(4, 7)])
