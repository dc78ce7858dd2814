"""All passes together: the optimised graph computes what the graph as built computes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from poolrt import Graph
from poolrt.graph.passes import ORDER, PASSES, optimize
from poolrt.graph.wire import to_wire
from tests.poolrt.graph.interpreter import run_wire
from tests.poolrt.graph.random_graphs import graphs

Array = NDArray[Any]


def _close(got: dict[str, Array], expected: dict[str, Array]) -> None:
    for name, values in expected.items():
        # Folding moves where constants are rounded to float32: an error of some units in the last place of the largest.
        scale = max(1.0, float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0)))
        np.testing.assert_allclose(got[name], values, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("examples", [40, pytest.param(250, marks=pytest.mark.slow)])
def test_optimised_and_unoptimised_graphs_compute_the_same(examples: int) -> None:
    @settings(max_examples=examples)
    @given(graphs())
    def compare(drawn: tuple[Graph, dict[str, Array]]) -> None:
        graph, inputs = drawn
        expected = run_wire(*graph.to_wire(optimize=False), inputs)
        _close(run_wire(*graph.to_wire(), inputs), expected)

    compare()


@pytest.mark.parametrize("examples", [20, pytest.param(100, marks=pytest.mark.slow)])
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


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_a_pass_changes_no_graph_without_nodes_of_its_kinds(drawn: tuple[Graph, dict[str, Array]]) -> None:
    graph, _ = drawn
    ir = graph.to_ir()
    for each in ORDER:
        kept = {} if each.kinds is None else {node.kind for node in ir.nodes} & each.kinds
        if each.kinds is not None and not kept:
            assert to_wire(each.load()(ir))[0] == to_wire(ir)[0]
        ir = each.load()(ir)
    # So all of them give what those that are needed give
    assert to_wire(ir)[0] == graph.to_wire()[0]


def test_a_small_graph_imports_few_passes() -> None:
    program = """
import sys
import poolrt

g = poolrt.Graph("small")
g.output("y", g.eltwise(g.input("x", (2, 3)), "relu"))
g.to_wire()
print(*(name.rpartition(".")[2] for name in sys.modules if name.startswith("poolrt.graph.passes.")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert {*done.stdout.split()} == {"identities", "dead", "rewriter"}
