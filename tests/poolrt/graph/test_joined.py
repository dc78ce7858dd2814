"""Concatenations whose sources are computed in their places: no step copies them, and results stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt import Graph, Value

from .interpreter import run_wire
from .lowering import kinds, lowered
from .native_graphs import NativeGraphs

Array = NDArray[Any]
Build = Callable[[Graph, Value], Value]
SHAPE = (1, 32, 4, 6)


def relu(g: Graph, x: Value) -> Value:
    return g.eltwise(x, "relu")


def tanh(g: Graph, x: Value) -> Value:
    return g.eltwise(x, "tanh")


def nested(g: Graph, x: Value) -> Value:
    """Return a block of a DenseNet: each sum joins all before it."""
    for _ in range(4):
        x = g.concat([x, tanh(g, x)], 1) if x.shape != SHAPE else g.concat([relu(g, x), tanh(g, x)], 1)
    return tanh(g, x)


def read_before_and_after(g: Graph, x: Value) -> Value:
    first, second = relu(g, x), tanh(g, x)
    early = g.eltwise(first, "square")
    both = g.concat([first, second], 1)
    late = g.binary(g.binary(first, second, "mul"), early, "add")
    return g.concat([tanh(g, both), tanh(g, late)], 1)


def slices_of_a_part(g: Graph, x: Value) -> Value:
    first = relu(g, x)
    both = g.concat([first, tanh(g, x)], 1)
    return g.binary(g.slice(both, (0, 16), (1, 48), (0, 1)), g.reshape(g.transpose(first, (0, 1, 3, 2)), SHAPE), "add")


#: Graphs of x (1, 32, 4, 6), and how many concatenations are steps.
GRAPHS: dict[str, tuple[Build, int]] = {
    "two results": (lambda g, x: tanh(g, g.concat([relu(g, x), tanh(g, x)], 1)), 0),
    "a block of sums": (nested, 0),
    "parts that others read": (read_before_and_after, 0),
    "the first axis": (lambda g, x: tanh(g, g.concat([relu(g, x), tanh(g, x)], 0)), 0),
    "an output": (lambda g, x: g.concat([relu(g, x), tanh(g, x)], 1), 0),
    "an input": (lambda g, x: tanh(g, g.concat([x, tanh(g, x)], 1)), 1),
    "a constant": (lambda g, x: tanh(g, g.concat([relu(g, x), np.ones(SHAPE, np.float32)], 1)), 1),
    "a result twice": (lambda g, x: tanh(g, g.concat([y := relu(g, x), y], 1)), 1),
    "rows": (lambda g, x: tanh(g, g.concat([relu(g, x), tanh(g, x)], 2)), 1),
    "a part of another": (
        lambda g, x: g.concat([g.concat([y := relu(g, x), tanh(g, x)], 1), g.concat([y, tanh(g, y)], 1)], 1),
        1,
    ),
    "unaligned parts": (lambda g, x: tanh(g, g.concat([g.slice(relu(g, x), (0, 0), (1, 3)), relu(g, x)], 1)), 1),
}


def graph_of(build: Build) -> Graph:
    g = Graph("g")
    g.output("y", build(g, g.input("x", SHAPE)))
    return g


@pytest.mark.parametrize("name", GRAPHS)
def test_joined_results_are_the_same(native_graphs: NativeGraphs, name: str) -> None:
    build, _ = GRAPHS[name]
    g = graph_of(build)
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    want = run_wire(*g.to_wire(), {"x": x})["y"]
    np.testing.assert_allclose(native_graphs.run(g, {"x": x})["y"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", GRAPHS)
def test_sources_that_steps_compute_in_one_piece_are_joined_without_a_step(name: str) -> None:
    build, copied = GRAPHS[name]
    assert kinds(lowered(graph_of(build))).count("concat") == copied


@pytest.mark.parametrize("order", ["first, both", "both, second", "second, first, both"])
def test_parts_that_leave_the_graph_are_outputs_of_their_own(native_graphs: NativeGraphs, order: str) -> None:
    g = Graph("g")
    x = g.input("x", SHAPE)
    values = {"first": relu(g, x), "second": tanh(g, x)}
    values["both"] = g.concat([*values.values()], 1)
    for name in order.split(", "):
        g.output(name, values[name])
    given = np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32)
    want = run_wire(*g.to_wire(), {"x": given})
    for name, got in native_graphs.run(g, {"x": given}).items():
        np.testing.assert_allclose(got, want[name], rtol=1e-5, atol=1e-6)
