"""Biases, activations and residuals that follow a product of a batch are found beside it, and results stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt import Graph, Value
from poolrt.graph import passes
from tests.poolrt.graph.interpreter import run_wire

Array = NDArray[Any]
Build = Callable[[Graph, Value, Value], Value]


def drawn(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


#: Inputs x (2, 3, 4) and y (2, 3, 5).
FUSED: dict[str, Build] = {
    "a bias": lambda g, x, _: g.binary(g.matmul(x, drawn(4, 5)), drawn(5), "add"),
    "a bias on the left": lambda g, x, _: g.binary(drawn(1, 1, 5), g.matmul(x, drawn(4, 5)), "sub"),
    "a residual": lambda g, x, y: g.binary(y, g.matmul(x, drawn(4, 5)), "add"),
    "a bias, a residual and a relu": lambda g, x, y: g.eltwise(
        g.sum([g.binary(g.matmul(x, drawn(4, 5)), drawn(5), "add"), y]), "relu"
    ),
    "a scale": lambda g, x, _: g.binary(g.matmul(x, drawn(4, 5)), 0.5, "mul"),
    "a product of a matrix": lambda g, x, _: g.binary(
        g.reshape(g.inner_product(g.reshape(x, (6, 4)), drawn(5, 4)), (2, 3, 5)), drawn(5), "add"
    ),
    "a product that is read as a residual": lambda g, x, y: g.binary(
        g.matmul(x, drawn(4, 5)), g.matmul(y, drawn(5, 5)), "add"
    ),
}
APART: dict[str, Build] = {
    "numbers of each row": lambda g, x, _: g.binary(g.matmul(x, drawn(4, 5)), drawn(3, 1), "mul"),
    "rows that others read": lambda g, x, y: g.concat(
        [g.binary(p := g.matmul(x, drawn(4, 5)), y, "mul"), g.softmax(p)], 0
    ),
    "a batch": lambda g, x, _: g.binary(g.matmul(x, drawn(2, 4, 5)), drawn(5), "add"),
}


def graph_of(build: Build) -> Graph:
    g = Graph("g")
    g.output("z", build(g, g.input("x", (2, 3, 4)), g.input("y", (2, 3, 5))))
    return g


def computing(g: Graph) -> list[str]:
    """Return what an optimised graph has beside views."""
    return [node.kind for node in passes.optimize(g.to_ir()).nodes if node.kind not in ("reshape", "transpose")]


@pytest.mark.parametrize("name", [*FUSED, *APART])
def test_what_follows_a_product_computes_the_same(name: str) -> None:
    g = graph_of({**FUSED, **APART}[name])
    inputs = {"x": drawn(2, 3, 4), "y": drawn(2, 3, 5)}
    want = run_wire(*g.to_wire(optimize=False), inputs)["z"]
    np.testing.assert_allclose(run_wire(*g.to_wire(), inputs)["z"], want, rtol=1e-5, atol=1e-6)
    assert (set(computing(g)) == {"inner_product"}) == (name in FUSED)


def test_rows_that_leave_the_graph_are_a_batch_again() -> None:
    g = Graph("g")
    x = g.input("x", (2, 3, 4))
    first = g.matmul(x, drawn(4, 5))
    g.output("first", first)
    g.output("second", g.eltwise(first, "tanh"))
    inputs = {"x": drawn(2, 3, 4)}
    want = inputs["x"] @ drawn(4, 5)
    found = run_wire(*g.to_wire(), inputs)
    np.testing.assert_allclose(found["first"], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["second"], np.tanh(want), rtol=1e-5, atol=1e-6)
