"""What each pass finds, and what it must leave alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt import Graph, Value

Array = NDArray[Any]
RELU = ["eltwise", "relu", 0.0, 0.0]


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def shape_of(build: Callable[[Graph, Value], Value]) -> list[Any]:
    """Return kind and post-op algorithms of each node of an optimised graph on an image (1, 4, 6, 6)."""
    g = Graph("g")
    g.output("y", build(g, g.input("x", (1, 4, 6, 6))))
    wire, _ = g.to_wire()
    return [" ".join([node[0], *(post_op[1] for post_op in node[5])]) for node in wire["nodes"]]


def convolution(g: Graph, x: Value) -> Value:
    return g.convolution(x, ones(4, 4, 1, 1))


def normalization(g: Graph, x: Value) -> Value:
    return g.batch_normalization(x, ones(4), ones(4), ones(4), ones(4))


def relu(g: Graph, x: Value) -> Value:
    return g.eltwise(x, "relu")


def both(g: Graph, x: Value) -> Value:
    return g.binary(convolution(g, x), convolution(g, x), "add")


PATTERNS: list[tuple[Callable[[Graph, Value], Value], list[str]]] = [
    (lambda g, x: relu(g, normalization(g, convolution(g, x))), ["convolution relu"]),
    (lambda g, x: relu(g, normalization(g, x)), ["batch_normalization relu"]),
    (lambda g, x: g.binary(g.binary(normalization(g, x), ones(4, 1, 1), "mul"), 1.0, "add"), ["batch_normalization"]),
    (lambda g, x: g.binary(g.binary(convolution(g, x), ones(4, 1, 1), "mul"), 1.0, "sub"), ["convolution"]),
    (lambda g, x: normalization(g, g.binary(normalization(g, convolution(g, x)), 2.0, "div")), ["convolution"]),
    (lambda g, x: relu(g, g.binary(x, convolution(g, x), "add")), ["convolution add relu"]),
    (lambda g, x: g.binary(x, relu(g, convolution(g, x)), "add"), ["convolution relu add"]),
    (lambda g, x: relu(g, g.sum([relu(g, convolution(g, x)), x])), ["convolution relu add relu"]),
    (lambda g, x: relu(g, both(g, x)), ["convolution", "convolution add relu"]),
    (lambda g, x: relu(g, g.sum([x, x, x])), ["sum relu"]),
    (lambda g, x: relu(g, g.binary(x, x, "max")), ["binary relu"]),
    (lambda g, x: relu(g, g.matmul(g.reshape(x, (24, 6)), ones(6, 5), ones(5))), ["reshape", "inner_product relu"]),
    (lambda g, x: g.matmul(x, ones(6, 5), ones(5)), ["reshape", "inner_product", "reshape"]),
    (lambda g, x: g.matmul(x, ones(1, 4, 6, 5)), ["matmul"]),
    (lambda g, x: g.transpose(g.sum([g.concat([g.eltwise(x, "linear")], 1)]), (0, 1, 2, 3)), []),
    (lambda g, x: g.reshape(g.reshape(g.unsqueeze(x, 0), (4, 36)), (36, 4)), ["reshape"]),
    # Not the same thing, or not the only reader: left alone.
    (lambda g, x: g.eltwise(convolution(g, x), "relu", 0.5), ["convolution", "eltwise"]),
    (lambda g, x: g.binary(convolution(g, x), ones(6), "mul"), ["convolution", "binary"]),
    (lambda g, x: g.binary(convolution(g, x), ones(1, 4, 6, 6), "add"), ["convolution", "binary"]),
    (lambda g, x: g.binary(convolution(g, x), 0.0, "div"), ["convolution", "binary"]),
    (lambda g, x: g.binary(ones(1, 4, 1, 1), convolution(g, x), "div"), ["convolution", "binary"]),
    (lambda g, x: g.binary(convolution(g, x), x, "mul"), ["convolution", "binary"]),
    (lambda g, x: normalization(g, relu(g, convolution(g, x))), ["convolution relu", "batch_normalization"]),
    (lambda g, x: g.concat([c := convolution(g, x), relu(g, c)], 1), ["convolution", "eltwise", "concat"]),
    (lambda g, x: g.binary(c := convolution(g, x), c, "add"), ["convolution", "binary"]),
    (lambda g, x: relu(g, g.pooling(x, "max", 2)), ["pooling", "eltwise"]),
    (lambda g, x: g.binary(g.convolution(x, ones(4, 4, 6, 6)), x, "add"), ["convolution", "binary"]),
]  # fmt: skip


@pytest.mark.parametrize(("build", "expected"), PATTERNS)
def test_a_pattern_becomes(build: Callable[[Graph, Value], Value], expected: list[str]) -> None:
    assert shape_of(build) == expected


def test_what_leaves_the_graph_is_not_absorbed() -> None:
    g = Graph("g")
    x = g.input("x", (1, 4, 6, 6))
    inner = convolution(g, x)
    g.output("inner", inner)
    g.output("y", relu(g, normalization(g, inner)))
    wire, _ = g.to_wire()
    assert [node[0] for node in wire["nodes"]] == ["convolution", "batch_normalization"]
    assert wire["nodes"][1][5] == [RELU]


def test_of_two_convolutions_the_later_takes_the_addition_and_stands_behind_the_earlier() -> None:
    g = Graph("g")
    x = g.input("x", (1, 4, 6, 6))
    first = g.convolution(x, ones(4, 4, 1, 1), name="first")
    second = g.convolution(x, ones(4, 4, 1, 1), name="second")
    g.output("y", g.sum([second, first], name="join"))
    wire, _ = g.to_wire()
    earlier, later = wire["nodes"]
    assert (earlier[1], later[1]) == ("first", "second")
    assert later[5] == [["binary", "add", earlier[3][0]]]


def test_a_convolution_without_bias_gets_one_when_a_shift_is_folded_into_it() -> None:
    g = Graph("g")
    weights = np.arange(8, dtype=np.float32).reshape(4, 2, 1, 1)
    x = g.input("x", (1, 2, 3, 3))
    mean, variance, scale, shift = np.array([[1, 2, 3, 4], [4, 9, 16, 25], [2, 3, 4, 5], [5, 6, 7, 8]], np.float32)
    normal = g.batch_normalization(g.convolution(x, weights), mean, variance, scale, shift, epsilon=0.0)
    g.output("y", normal)
    wire, constants = g.to_wire()
    assert [node[2] for node in wire["nodes"]] == [[0, 1, 2]]
    assert constants[0].array is weights
    np.testing.assert_array_equal(constants[0].to_array(), weights)
    np.testing.assert_array_equal(constants[1].to_array(), [4, 4, 4, 4])


def test_weights_used_twice_are_scaled_for_one_reader_only() -> None:
    g = Graph("g")
    weights = ones(4, 4, 1, 1)
    x = g.input("x", (1, 4, 3, 3))
    g.output("plain", g.convolution(x, weights))
    g.output("doubled", g.binary(g.convolution(x, weights), 2.0, "mul"))
    wire, constants = g.to_wire()
    first, second = (constants[[number for number, _ in wire["constants"]].index(n[2][1])] for n in wire["nodes"])
    assert first.to_array().max() == 1
    assert second.to_array().min() == 2
    assert first.array is second.array is weights


def test_unused_constants_do_not_travel() -> None:
    g = Graph("g")
    x = g.input("x", (1, 4, 6, 6))
    g.output("y", normalization(g, convolution(g, x)))
    _, constants = g.to_wire()
    assert [constant.dims for constant in constants] == [(4, 4, 1, 1), (4,)]
