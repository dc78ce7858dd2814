"""Graphs in training: what each operation keeps, and what batch normalizations take."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt import Graph, GraphError
from poolrt.graph.lower import lower
from poolrt.graph.training import to_training
from poolrt.graph.wire import to_wire
from poolrt.graph.wire_parser import parse

from .every_operation import OPERATIONS, array, graph_of, positive, values_of
from .interpreter import run_wire
from .test_layout_inserter import TARGETS

IMAGE = (2, 6, 7, 9)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_computes_in_training_what_it_does_otherwise(name: str) -> None:
    graph = graph_of(name)
    ir = to_training(graph.to_ir())
    assert all(node.attrs.get("prop", "forward_training") == "forward_training" for node in ir.nodes)
    expected = run_wire(*graph.to_wire(False), {"x": values_of(name)})
    found = run_wire(*to_wire(ir), {"x": values_of(name)})
    assert found.keys() >= expected.keys()
    for output, values in expected.items():
        assert np.array_equal(found[output], values)
    lower(parse(to_wire(ir)[0]), TARGETS)


def test_a_batch_normalization_leaves_given_statistics_aside() -> None:
    g = Graph("g")
    x = g.input("x", IMAGE)
    g.output("y", g.batch_normalization(x, array(6), positive(6), array(6), name="bn"))
    ir = to_training(g.to_ir())
    assert ir.nodes[0].attrs["flags"] == ("use_scale", "use_shift")
    assert len(ir.nodes[0].inputs) == 3
    values = array(*IMAGE)
    found = run_wire(*to_wire(ir), {"x": values})
    assert abs(found["bn.mean"] - values.mean((0, 2, 3))).max() <= 1e-6
    assert abs(found["bn.variance"] - values.var((0, 2, 3))).max() <= 1e-6


def test_what_is_kept_must_not_take_the_name_of_an_output() -> None:
    g = Graph("g")
    y = g.pooling(g.input("x", IMAGE), "max", 2, name="pool")
    g.output("pool.workspace", y)
    with pytest.raises(GraphError, match=r"output 'pool.workspace': the workspace of node 'pool' has this name"):
        to_training(g.to_ir())
