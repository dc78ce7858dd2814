"""Normalizations are recognised where a graph spells them out, and compute the same then."""

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
Build = Callable[[Graph, Value], Value]


def drawn(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def mean(g: Graph, x: Value) -> Value:
    return g.reduction(x, "mean", -1, keep_dims=True)


def pooled(g: Graph, x: Value) -> Value:
    """Return the mean as importers of ONNX compute it for three dimensions."""
    return g.pooling(x, "avg_include_padding", (x.shape[-1],))


def root(g: Graph, x: Value, average: Callable[[Graph, Value], Value] = mean, epsilon: float = 1e-3) -> Value:
    return g.eltwise(g.binary(average(g, g.eltwise(x, "square")), epsilon, "add"), "sqrt")


def centered(g: Graph, x: Value) -> Value:
    return g.binary(x, mean(g, x), "sub")


def layer(g: Graph, x: Value) -> Value:
    c = centered(g, x)
    return g.binary(c, root(g, c), "div")


def rms(g: Graph, x: Value, average: Callable[[Graph, Value], Value] = mean) -> Value:
    return g.binary(x, g.binary(1.0, root(g, x, average), "div"), "mul")


#: Input x (2, 3, 5).
RECOGNISED: dict[str, Build] = {
    "layer": layer,
    "layer with scale and shift": lambda g, x: g.binary(g.binary(drawn(5), layer(g, x), "mul"), drawn(5), "add"),
    "layer with a shift": lambda g, x: g.binary(layer(g, x), drawn(5), "add"),
    "rms": rms,
    "rms with a scale": lambda g, x: g.binary(drawn(1, 1, 5), rms(g, x, pooled), "mul"),
    "rms of four dimensions": lambda g, x: rms(g, g.reshape(x, (1, 2, 3, 5))),
    "squares by a product": lambda g, x: g.binary(
        x, g.eltwise(g.eltwise(mean(g, g.binary(x, x, "mul")), "linear", 1.0, 0.5), "sqrt"), "div"
    ),
}
APART: dict[str, Build] = {
    "squares of others": lambda g, x: g.binary(x, root(g, g.eltwise(x, "tanh")), "div"),
    "the mean along another axis": lambda g, x: g.binary(
        x,
        g.eltwise(g.binary(g.reduction(g.eltwise(x, "square"), "mean", 1, keep_dims=True), 1e-3, "add"), "sqrt"),
        "div",
    ),
    "padding counts": lambda g, x: rms(g, x, lambda g, x: g.pooling(x, "avg_include_padding", (7,), padding=[(1, 1)])),
    "twice the quotient": lambda g, x: g.binary(x, g.binary(2.0, root(g, x), "div"), "mul"),
    "the root is read twice": lambda g, x: g.binary(g.binary(x, r := root(g, x), "div"), r, "add"),
    "no epsilon": lambda g, x: g.binary(x, g.eltwise(mean(g, g.eltwise(x, "square")), "sqrt"), "div"),
}


@pytest.mark.parametrize("name", [*RECOGNISED, *APART])
def test_a_normalization_computes_the_same(name: str) -> None:
    g = Graph("g")
    g.output("y", {**RECOGNISED, **APART}[name](g, g.input("x", (2, 3, 5))))
    kinds = [node.kind for node in passes.optimize(g.to_ir()).nodes if node.kind != "reshape"]
    assert (kinds == ["layer_normalization"]) == (name in RECOGNISED)
    x = drawn(2, 3, 5)
    want = run_wire(*g.to_wire(optimize=False), {"x": x})["y"]
    np.testing.assert_allclose(run_wire(*g.to_wire(), {"x": x})["y"], want, rtol=1e-5, atol=1e-6)


def test_a_difference_that_others_read_stays() -> None:
    g = Graph("g")
    c = centered(g, g.input("x", (2, 3, 5)))
    g.output("y", g.binary(c, root(g, c), "div"))
    g.output("c", c)
    x = drawn(2, 3, 5)
    want = run_wire(*g.to_wire(optimize=False), {"x": x})
    found = run_wire(*g.to_wire(), {"x": x})
    for name in want:
        np.testing.assert_allclose(found[name], want[name], rtol=1e-5, atol=1e-6)
