"""All passes together: the optimised graph computes what the graph as built computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from poolrt import Graph
from poolrt.graph.passes import PASSES, optimize
from poolrt.graph.wire import to_wire
from tests.poolrt.graph.interpreter import run_wire
from tests.poolrt.graph.random_graphs import graphs

Array = NDArray[Any]


def _close(got: dict[str, Array], expected: dict[str, Array]) -> None:
    for name, values in expected.items():
        # Folding moves where constants are rounded to float32: an error of some units in the last place of the largest.
        scale = max(1.0, float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0)))
        np.testing.assert_allclose(got[name], values, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("examples", [80, pytest.param(250, marks=pytest.mark.slow)])
def test_optimised_and_unoptimised_graphs_compute_the_same(examples: int) -> None:
    @settings(max_examples=examples)
    @given(graphs())
    def compare(drawn: tuple[Graph, dict[str, Array]]) -> None:
        graph, inputs = drawn
        expected = run_wire(*graph.to_wire(optimize=False), inputs)
        _close(run_wire(*graph.to_wire(), inputs), expected)

    compare()


@pytest.mark.parametrize("examples", [40, pytest.param(100, marks=pytest.mark.slow)])
def test_each_pass_alone_and_a_second_round_compute_the_same(examples: int) -> None:
    @settings(max_examples=examples)
    @given(graphs())
    def compare(drawn: tuple[Graph, dict[str, Array]]) -> None:
        graph, inputs = drawn
        ir = graph.to_ir()
        expected = run_wire(*graph.to_wire(optimize=False), inputs)
        for run in PASSES:
            _close(run_wire(*to_wire(run(ir)), inputs), expected)
        _close(run_wire(*to_wire(optimize(optimize(ir))), inputs), expected)

    compare()


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_optimising_leaves_the_graph_itself_alone(drawn: tuple[Graph, dict[str, Array]]) -> None:
    graph, _ = drawn
    before, _ = graph.to_wire(optimize=False)
    optimised, _ = graph.to_wire()
    assert graph.to_wire(optimize=False)[0] == before
    assert len(optimised["nodes"]) <= len(before["nodes"])
    assert [name for name, _ in optimised["outputs"]] == [name for name, _ in before["outputs"]]
    assert optimised["inputs"] == before["inputs"]
