"""Graphs that dequantise, compute and quantise again are computed on 8-bit integers, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt import Graph
from poolrt.graph.ir import Node
from poolrt.graph.passes import optimize
from poolrt.graph.values import Value
from poolrt.workers.desc import Arg
from tests.poolrt.graph.interpreter import run_wire

Array = NDArray[Any]


class Quantised:
    """A graph with what exporters write between its operations."""

    def __init__(self) -> None:
        self.graph = Graph("quantised")
        self.rng = np.random.default_rng(7)

    def quantise(self, value: Value, scale: float, point: int, dtype: str = "uint8") -> Value:
        return self.graph.reorder(value, dtype=dtype, scales={"dst": scale}, zero_points={"dst": point})

    def restored(self, value: Value, scale: float, point: int, dtype: str = "uint8") -> Value:
        """Quantise and dequantise a value."""
        stored = self.quantise(value, scale, point, dtype)
        return self.graph.reorder(stored, dtype="float32", scales={"src": scale}, zero_points={"src": point})

    def weights(self, *dims: int, outputs: int = 0) -> Value:
        """Return dequantised weights with a scale for each index of a dimension."""
        stored = self.graph.constant(self.rng.integers(-127, 128, dims).astype(np.int8))
        shape = [size if axis == outputs else 1 for axis, size in enumerate(dims)]
        return self.graph.reorder(
            stored, dtype="float32", scales={"src": self.rng.uniform(0.005, 0.01, shape).astype(np.float32)}
        )

    def bias(self, size: int) -> Value:
        stored = self.graph.constant(self.rng.integers(-900, 900, size).astype(np.int32))
        return self.graph.reorder(stored, dtype="float32", scales={"src": np.full(size, 1e-3, np.float32)})

    def nodes(self) -> list[Node]:
        return list(optimize(self.graph.to_ir()).nodes)

    def assert_same(self, quantum: float, **inputs: Array) -> None:
        """Raise AssertionError unless results differ by one quantum at most, and few of them by that."""
        want = run_wire(*self.graph.to_wire(optimize=False), inputs)["y"]
        got = run_wire(*self.graph.to_wire(), inputs)["y"]
        apart = np.abs(got.astype(np.float64) - want)
        assert np.abs(want).max() > 5 * quantum
        assert apart.max() <= 1.001 * quantum
        assert (apart > 0.5 * quantum).mean() < 0.02


def numbers(node: Node) -> set[tuple[str, int]]:
    return {(use.kind, use.arg) for use in node.quantisation}


SCALES = {("scales", Arg.SRC), ("scales", Arg.WEIGHTS), ("scales", Arg.DST)}
POINTS = {("zero_points", Arg.SRC), ("zero_points", Arg.DST)}


def test_a_convolution_takes_bias_residual_relu_and_requantisation() -> None:
    q = Quantised()
    g = q.graph
    x = q.restored(g.input("x", (2, 8, 7, 7), "float32"), 0.02, 120)
    # Given two convolutions, whose results are added and quantised, one of them after a quantisation of its own
    first = q.restored(g.convolution(x, q.weights(16, 8, 1, 1), q.bias(16)), 0.03, 110)
    second = g.convolution(x, q.weights(16, 8, 3, 3), padding=1)
    g.output("y", q.quantise(g.eltwise(g.binary(second, first, "add"), "relu"), 0.05, 0))
    # Then nothing is left but the quantisation of the input and two convolutions
    nodes = q.nodes()
    assert [node.kind for node in nodes] == ["reorder", "convolution", "convolution"]
    assert numbers(nodes[1]) == SCALES | POINTS
    assert numbers(nodes[2]) == SCALES | {("zero_points", Arg.SRC)}
    assert [use.algorithm for use in nodes[2].post_ops] == ["add", "relu"]
    q.assert_same(1.0, x=q.rng.standard_normal((2, 8, 7, 7)).astype(np.float32))


def test_products_pooling_views_and_additions_stay_in_integers() -> None:
    q = Quantised()
    g = q.graph
    x = q.restored(g.input("x", (1, 4, 8, 8), "float32"), 0.02, 0, "int8")
    # Given the maximum and a view with the quantisation of their source, and a sum of two quantised tensors
    pooled = q.restored(g.pooling(x, "max", 2, strides=2), 0.02, 0, "int8")
    total = g.eltwise(g.binary(pooled, q.restored(g.pooling(x, "max", 2, strides=2), 0.02, 0, "int8"), "add"), "relu")
    flat = q.restored(g.reshape(q.restored(total, 0.04, 3), (1, 64)), 0.04, 3)
    product = g.matmul(flat, q.weights(64, 10, outputs=1), q.rng.standard_normal(10).astype(np.float32))
    g.output("y", product)
    nodes = q.nodes()
    # Then each of them reads and writes what is stored, and the product dequantises its result
    kinds = ["reorder", "pooling", "pooling", "binary", "reshape", "matmul"]
    assert [node.kind for node in nodes] == kinds
    assert not nodes[1].quantisation
    assert numbers(nodes[5]) == {("scales", Arg.SRC), ("zero_points", Arg.SRC), ("scales", Arg.WEIGHTS)}
    q.assert_same(1e-4, x=q.rng.standard_normal((1, 4, 8, 8)).astype(np.float32))


def test_products_of_tensors_and_functions_stay_in_integers() -> None:
    q = Quantised()
    g = q.graph
    x = q.restored(g.input("x", (1, 6, 5, 4), "float32"), 0.02, 120)
    # Given a function, and a product with one number for each channel
    gate = q.restored(g.eltwise(g.reduction(x, "max", (2, 3)), "logistic"), 1 / 256, 0)
    y = q.restored(g.binary(gate, q.restored(g.eltwise(x, "hardswish", 1 / 6, 0.5), 0.02, 20), "mul"), 0.02, 20)
    g.output("y", y)
    # Then each reads and writes what is stored
    nodes = q.nodes()
    kinds = [node.kind for node in nodes if node.quantisation and node.kind != "reorder"]
    assert sorted(kinds) == ["binary", "eltwise"]
    q.assert_same(0.021, x=q.rng.standard_normal((1, 6, 5, 4)).astype(np.float32))


def test_quantisation_spelled_out_is_recognised_and_unread_constants_are_dequantised() -> None:
    q = Quantised()
    g = q.graph
    x = q.restored(g.input("x", (1, 8, 5, 5), "float32"), 0.02, 120)
    # Given ONNX's definition after a convolution, and weights that a float32 operation reads
    y = g.binary(g.convolution(x, q.weights(16, 8, 1, 1)), np.full((1, 1, 1, 1), 0.05, np.float32), "div")
    y = g.reorder(g.binary(g.eltwise(y, "round"), np.full((1, 1, 1, 1), 90, np.float32), "add"), dtype="uint8")
    g.output("y", y)
    g.output("z", g.convolution(g.eltwise(x, "tanh"), q.weights(16, 8, 1, 1)))
    # Then the convolution quantises its result, and those weights are a constant
    nodes = q.nodes()
    assert [node.kind for node in nodes] == ["reorder", "reorder", "convolution", "eltwise", "convolution"]
    assert numbers(nodes[2]) == SCALES | POINTS
    q.assert_same(1.0, x=q.rng.standard_normal((1, 8, 5, 5)).astype(np.float32))


@pytest.mark.parametrize(("groups", "outputs"), [(2, 24), (3, 8), (4, 4)])
def test_groups_that_are_no_whole_blocks_of_sixteen_outputs_stay_in_integers(groups: int, outputs: int) -> None:
    q = Quantised()
    g = q.graph
    x = q.restored(g.input("x", (1, groups * 4, 5, 6), "float32"), 0.02, 100)
    y = g.convolution(x, q.weights(groups * outputs, 4, 3, 3), groups=groups, padding=1)
    g.output("y", q.quantise(y, 0.07, 90))
    nodes = q.nodes()
    assert [node.kind for node in nodes] == ["reorder", "convolution"]
    assert numbers(nodes[1]) == SCALES | POINTS
    q.assert_same(1.0, x=q.rng.standard_normal((1, groups * 4, 5, 6)).astype(np.float32))


@pytest.mark.parametrize(
    "case", ["point of weights", "point beyond its type", "scale of channels", "two readers", "another scale", "groups"]
)
def test_what_integers_cannot_compute_stays_as_it_is(case: str) -> None:
    q = Quantised()
    g = q.graph
    x = g.input("x", (1, 16, 4, 4), "float32")
    # Given what no integer implementation computes
    if case == "scale of channels":
        scale = np.linspace(0.01, 0.02, 16, dtype=np.float32).reshape(1, 16, 1, 1)
        stored = g.reorder(x, dtype="uint8", scales={"dst": scale})
        src = g.reorder(stored, dtype="float32", scales={"src": scale})
    elif case == "point beyond its type":
        stored = g.reorder(x, dtype="int8", scales={"dst": 0.02})
        src = g.reorder(stored, dtype="float32", scales={"src": 0.02}, zero_points={"src": 128})
    else:
        src = q.restored(x, 0.02, 100)
    if case == "another scale":
        result = g.pooling(src, "max", 2)
    elif case == "point of weights":
        stored = g.constant(q.rng.integers(-127, 128, (16, 16, 1, 1)).astype(np.int8))
        weights = g.reorder(stored, dtype="float32", scales={"src": 0.01}, zero_points={"src": 3})
        result = g.convolution(src, weights)
    elif case == "groups":
        result = g.convolution(src, q.weights(8, 4, 1, 1), groups=4)
    else:
        result = g.convolution(src, q.weights(16, 16, 1, 1), padding=int(case == "point beyond its type"))
    y = q.quantise(result, 0.07, 90)
    if case == "two readers":
        g.output("z", g.eltwise(result, "tanh"))
    g.output("y", y)
    # Then the node that quantises is left
    nodes = q.nodes()
    assert nodes[-1].kind == "reorder" or case == "two readers"
    quantisers = [node for node in nodes if node.kind == "reorder" and ("scales", Arg.DST) in numbers(node)]
    assert len(quantisers) == 2
    q.assert_same(1.0, x=q.rng.standard_normal((1, 16, 4, 4)).astype(np.float32))


@pytest.mark.parametrize("scales", [np.linspace(0.02, 0.04, 16).reshape(1, 16, 1, 1), np.asarray(-0.03)])
def test_a_sum_that_stays_in_floats_leaves_the_product_before_it_alone(scales: Array) -> None:
    q = Quantised()
    g = q.graph
    x = q.restored(g.input("x", (1, 16, 4, 4), "float32"), 0.02, 100)
    # Given a constant with a zero point, and with scales that no integer sum has
    stored = g.constant(q.rng.integers(0, 256, (1, 16, 4, 4)).astype(np.uint8))
    added = g.reorder(
        stored, dtype="float32", scales={"src": scales.astype(np.float32)}, zero_points={"src": np.int32(90)}
    )
    g.output("y", g.binary(g.convolution(x, q.weights(16, 16, 1, 1)), added, "add"))
    # Then the convolution adds nothing
    (convolution,) = (node for node in q.nodes() if node.kind == "convolution")
    assert len(convolution.inputs) == 2
    assert numbers(convolution) == {("scales", Arg.SRC), ("zero_points", Arg.SRC), ("scales", Arg.WEIGHTS)}
    q.assert_same(1e-4, x=q.rng.standard_normal((1, 16, 4, 4)).astype(np.float32))


@pytest.mark.parametrize("point", [2.5, 300.0, 1e30, np.inf])
def test_a_number_that_is_no_zero_point_is_added_before_the_conversion(point: float) -> None:
    q = Quantised()
    g = q.graph
    x = q.restored(g.input("x", (1, 16, 4, 4), "float32"), 0.02, 100)
    # Given sums that are divided and rounded, and then another number than bytes have
    whole = g.eltwise(g.binary(g.convolution(x, q.weights(16, 16, 1, 1)), 0.05, "div"), "round")
    g.output("y", g.reorder(g.binary(whole, point, "add"), dtype="uint8"))
    assert [node.kind for node in q.nodes()][1:] == ["convolution", "binary", "eltwise", "binary", "reorder"]
    q.assert_same(1.0, x=q.rng.standard_normal((1, 16, 4, 4)).astype(np.float32))
