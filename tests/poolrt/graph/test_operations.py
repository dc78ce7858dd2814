"""The operations that primitives offer beyond plain networks: shapes, results and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt import Graph, GraphError, Value

from .interpreter import run_wire


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


SHAPES: list[tuple[Callable[[Graph, Value], Value], tuple[int, ...]]] = [
    (lambda g, x: g.deconvolution(x, ones(8, 4, 3, 3)), (2, 8, 12, 14)),
    (lambda g, x: g.deconvolution(x, ones(8, 4, 3, 3), ones(8), strides=2, padding=1), (2, 8, 19, 23)),
    (lambda g, x: g.deconvolution(x, ones(8, 4, 3, 3), strides=2, padding=1, output_padding=1), (2, 8, 20, 24)),
    (lambda g, x: g.deconvolution(x, ones(4, 1, 2, 2), groups=4, strides=2), (2, 4, 20, 24)),
    (lambda g, x: g.resampling(x, "nearest", (5, 24)), (2, 4, 5, 24)),
    (lambda g, x: g.resampling(x, "linear", factors=2), (2, 4, 20, 24)),
    (lambda g, x: g.resampling(x, "linear", factors=(1.5, 0.25)), (2, 4, 15, 3)),
    (lambda g, x: g.reduction(x, "sum", -1), (2, 4, 10, 1)),
    (lambda g, x: g.reduction(x, "mean", (1, 3), keep_dims=False), (2, 10)),
    (lambda g, x: g.reduction(x, "max"), (1, 1, 1, 1)),
    (lambda g, x: g.reduction(x, "norm_lp_sum", 1, p=3, keep_dims=False), (2, 10, 12)),
    (lambda g, x: g.prelu(x, ones(4, 1, 1)), (2, 4, 10, 12)),
    (lambda g, x: g.shuffle(x, 1, 2), (2, 4, 10, 12)),
    (lambda g, x: g.layer_normalization(x), (2, 4, 10, 12)),
    (lambda g, x: g.rms_normalization(x, ones(12)), (2, 4, 10, 12)),
    (lambda g, x: g.layer_normalization(x, ones(12), ones(12)), (2, 4, 10, 12)),
    (lambda g, x: g.layer_normalization(x, mean=ones(2, 4, 10), variance=ones(2, 4, 10)), (2, 4, 10, 12)),
    (lambda g, x: g.layer_normalization(g.reshape(x, (960,)), ones(960)), (960,)),
    (lambda g, x: g.rms_normalization(g.reshape(x, (960,))), (960,)),
    (lambda g, x: g.group_normalization(x, 2, ones(4), ones(4)), (2, 4, 10, 12)),
    (lambda g, x: g.batch_normalization(x), (2, 4, 10, 12)),
    (lambda g, x: g.batch_normalization(x, scale=ones(4)), (2, 4, 10, 12)),
    (lambda g, x: g.lrn(x, 3, algorithm="within_channel"), (2, 4, 10, 12)),
    (lambda g, x: g.sum([x, x], (0.5, 2)), (2, 4, 10, 12)),
    (lambda g, x: g.attention(x, x, x), (2, 4, 10, 12)),
    (lambda g, x: g.select(x, x, 0), (2, 4, 10, 12)),
    (lambda g, x: g.select(ones(3, 2, 1, 1, 1) > 0, 1.5, x), (3, 2, 4, 10, 12)),
    (lambda g, x: g.pad(x, 1), (4, 6, 12, 14)),
    (lambda g, x: g.pad(x, [(0, 0), (0, 2), (-3, 1), (5, -5)], "edge"), (2, 6, 8, 12)),
    (lambda g, x: g.tile(x, (2, 1, 3, 1)), (4, 4, 30, 12)),
    (lambda g, x: g.depth_to_space(x, 2), (2, 1, 20, 24)),
    (lambda g, x: g.space_to_depth(x, 2), (2, 16, 5, 6)),
    (lambda g, x: g.slice(x, (9, -1), (0, -99), (2, 3), (-3, -1)), (2, 4, 3, 12)),
    (lambda g, x: g.scatter_elements(x, [[[[3]]]], [[[[0.5]]]], 2), (2, 4, 10, 12)),
    (lambda g, x: g.scatter_nd(x, [[1, 3], [0, -4]], ones(2, 10, 12), "max"), (2, 4, 10, 12)),
    (lambda g, x: g.gather(x, 3, 1), (2, 10, 12)),
    (lambda g, x: g.gather(x, [[0, -1, 2]], -1), (2, 4, 10, 1, 3)),
    (lambda g, x: g.gather_elements(x, np.zeros((1, 4, 3, 7), int), 3), (1, 4, 3, 7)),
    (lambda g, x: g.gather_nd(x, [[0, 3], [1, -4], [1, 1]]), (3, 10, 12)),
    (lambda g, x: g.gather_nd(x, np.zeros((2, 4, 5, 1), int), 2), (2, 4, 5, 12)),
    (lambda g, x: g.attention(x, ones(2, 2, 7, 12), ones(2, 2, 7, 5), ones(7) > 0, causal=True), (2, 4, 10, 5)),
    (lambda g, x: g.slice(x, 1, 2), (1, 4, 10, 12)),
    (lambda g, x: g.slice(x, (0, -3), (99, -1), (1, -1)), (2, 4, 10, 2)),
    (lambda g, x: g.slice(x, (1, 0), (10, 12), (2, 3), (3, 5)), (2, 4, 3, 3)),
    (lambda g, x: g.expand(g.slice(x, 0, 1, 1), (2, 7, 10, 12)), (2, 7, 10, 12)),
    (lambda g, x: g.expand(x, (3, 2, 4, 10, 12)), (3, 2, 4, 10, 12)),
]


@pytest.mark.parametrize(("operation", "expected"), SHAPES)
def test_an_operation_gives_its_shape(operation: Callable[[Graph, Value], Value], expected: tuple[int, ...]) -> None:
    g = Graph("g")
    y = operation(g, g.input("x", (2, 4, 10, 12)))
    assert y.shape == expected
    assert y.dtype == "float32"


def _recurrent(kind: str, gates: int, **attrs: Any) -> Callable[[Graph, Value], tuple[Value, ...]]:
    def operation(g: Graph, x: Value) -> tuple[Value, ...]:
        both = attrs.get("direction", "").startswith("bidirectional")
        wide, deep = ones(1, 1 + both, 3, gates, 6), ones(1, 1 + both, 6, gates, 6)
        result: tuple[Value, ...] = getattr(g, kind)(x, wide, deep, **attrs)
        return result

    return operation


STATE = (1, 1, 2, 6)
RECURRENT: list[tuple[Callable[[Graph, Value], tuple[Value, ...]], list[tuple[int, ...]]]] = [
    (_recurrent("rnn", 1), [(5, 2, 6), STATE]),
    (_recurrent("rnn", 1, activation="relu", src_iter=ones(1, 1, 2, 6)), [(5, 2, 6), STATE]),
    (_recurrent("lstm", 4), [(5, 2, 6), STATE, STATE]),
    (_recurrent("lstm", 4, direction="bidirectional_concat"), [(5, 2, 12), (1, 2, 2, 6), (1, 2, 2, 6)]),
    (_recurrent("gru", 3, direction="bidirectional_sum"), [(5, 2, 6), (1, 2, 2, 6)]),
    (_recurrent("gru", 3, linear_before_reset=True), [(5, 2, 6), STATE]),
]


@pytest.mark.parametrize(("operation", "expected"), RECURRENT)
def test_a_recurrent_network_returns_its_states_too(
    operation: Callable[[Graph, Value], tuple[Value, ...]], expected: list[tuple[int, ...]]
) -> None:
    g = Graph("g")
    results = operation(g, g.input("x", (5, 2, 3)))
    assert [value.shape for value in results] == expected
    for number, value in enumerate(results):
        g.output(f"y{number}", value)
    (node,) = g.to_wire()[0]["nodes"]
    assert len(node[3]) == len(expected)


def test_a_state_that_is_read_alone_keeps_its_node() -> None:
    g = Graph("g")
    x = g.input("x", (5, 2, 3))
    _, _, c = g.lstm(x, ones(1, 1, 3, 4, 6), ones(1, 1, 6, 4, 6))
    g.output("c", g.eltwise(c, "tanh"))
    lstm, tanh = g.to_wire()[0]["nodes"]
    assert tanh[2] == [lstm[3][2]]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_biases_of_recurrent_networks_keep_float64(dtype: str) -> None:
    g = Graph("g")
    x, given = g.input("x", (5, 2, 3), dtype), np.full((1, 1, 4, 6), 0.1)
    y, _, _ = g.lstm(x, ones(1, 1, 3, 4, 6), ones(1, 1, 6, 4, 6), given)
    g.output("y", y)
    (bias,) = (each.to_array() for each in g.to_wire()[1] if each.dims == given.shape)
    kept = np.float64 if dtype == "float64" else np.float32
    assert bias.dtype == kept
    np.testing.assert_array_equal(bias, given.astype(kept))


def test_packed_weights_may_be_a_list() -> None:
    g = Graph("g")
    x, stored = g.input("x", (3, 16)), np.arange(32).reshape(2, 1, 16)
    for weights in (stored.astype(np.uint8), stored, stored.tolist()):
        g.output(f"y{len(g.outputs)}", g.matmul_nbits(x, weights, ones(2, 1), bits=8))
    packed = [each.to_array() for each in g.to_wire()[1] if each.dims == stored.shape]
    assert [each.dtype for each in packed] == [np.uint8] * 3
    assert all(np.array_equal(each, stored) for each in packed)


ERRORS: list[tuple[Callable[[Graph, Value], object], str]] = [
    (lambda g, x: g.deconvolution(x, ones(8, 3, 3, 3)), "weights: expect 4 input channels, got 3"),
    (lambda g, x: g.deconvolution(x, ones(8, 4, 3, 3), output_padding=1), "output_padding: expect 0..0, got (1, 1)"),
    (lambda g, x: g.deconvolution(x, ones(8, 4, 3, 3), padding=9), "padding: it leaves nothing of the result (-6, -4)"),
    (lambda g, x: g.deconvolution(x, ones(8, 4, 3)), "weights: expect rank 4 like src (2, 4, 10, 12), got (8, 4, 3)"),
    (lambda g, x: g.resampling(x, "lanczos", 3), "algorithm: unknown 'lanczos'; known: nearest, linear, cubic"),
    (lambda g, x: g.resampling(x, "linear"), "sizes: expect either sizes or factors"),
    (
        lambda g, x: g.resampling(x, "linear", factors=(1, 2, 3)),
        "factors: expect 2 positive numbers, got (1.0, 2.0, 3.0)",
    ),
    (lambda g, x: g.resampling(x, "linear", factors=0.01), "sizes: expect 2 sizes >= 1, got (0, 0)"),
    (lambda g, x: g.reduction(x, "median"), "algorithm: unknown 'median'; known: max, min, sum, mul, mean"),
    (lambda g, x: g.reduction(x, "sum", 4), "axes: expect -4..3, got 4"),
    (lambda g, x: g.reduction(x, "sum", (1, 1)), "axes: expect each axis once"),
    (lambda g, x: g.reduction(x, "norm_lp_max", p=0.5), "p: must be at least 1, got 0.5"),
    (lambda g, x: g.prelu(x, ones(3)), "weights: (1, 1, 1, 3) does not broadcast to (2, 4, 10, 12)"),
    (lambda g, x: g.shuffle(x, 1, 3), "group_size: 3 must divide 4"),
    (lambda g, x: g.layer_normalization(x, ones(4)), "scale: expect (12,), got (4,)"),
    (lambda g, x: g.layer_normalization(x, mean=ones(2, 4, 10)), "variance: expect mean and variance, or neither"),
    (lambda g, x: g.group_normalization(x, 3), "groups: 3 must divide 4 channels"),
    (lambda g, x: g.batch_normalization(x, variance=ones(4)), "variance: expect mean and variance, or neither"),
    (lambda g, x: g.sum([x, x], (1,)), "scales_of_srcs: expect 2 numbers, got 1"),
    (lambda g, x: g.attention(x, x, ones(4, 10, 12)), "value: expect (batch, heads, rows, columns), got (4, 10, 12)"),
    (
        lambda g, x: g.attention(x, ones(2, 3, 7, 12), ones(2, 3, 7, 12)),
        "key: expect a number of heads that divides 4, got 3",
    ),
    (lambda g, x: g.attention(x, x, x, ones(4, 1)), "mask: expect each of (2, 4, 10, 10) or 1, got (1, 1, 4, 1)"),
    (lambda g, x: g.attention(x, x, x, scale=np.inf), "scale: expect a finite number, got inf"),
    (lambda g, x: g.select(x, x, ones(5)), "src1: shapes (2, 4, 10, 12) and (1, 1, 1, 5) do not broadcast"),
    (lambda g, x: g.scatter_nd(x, [[2]], ones(1, 4, 10, 12)), "indices: 2 is out of range for sizes of (2,)"),
    (lambda g, x: g.scatter_nd(x, [[1]], ones(4, 10, 12)), "updates: expect (1, 4, 10, 12), got (4, 10, 12)"),
    (lambda g, x: g.scatter_elements(x, [[[[3]]]], ones(1, 1, 1), 1), "updates: expect (1, 1, 1, 1), got (1, 1, 1)"),
    (lambda g, x: g.scatter_nd(x, [[1]], x, "mean"), "reduction: unknown 'mean'; known: none, add, mul, min, max"),
    (
        lambda g, x: g.matmul_nbits(g.reshape(x, (-1, 4)), np.zeros((2, 3, 8), np.uint8), np.ones((2, 3))),
        "blocks of 16",
    ),
    (lambda g, x: g.top_k(x, 13), "k: expect 1..12, got 13"),
    (lambda g, x: g.non_max_suppression(x, x, [1, 0, 0]), "boxes: expect (images, boxes, 4), got (2, 4, 10, 12)"),
    (lambda g, x: g.gather(x, [0, 4], 1), "indices: 4 is out of range for sizes of (4,)"),
    (lambda g, x: g.gather(x, [0.5]), "indices: expect integers, got [0.5]"),
    (lambda g, x: g.gather(x, x), "indices: expect s32 or s64, got f32"),
    (lambda g, x: g.gather(x, 0, 4), "axis: expect -4..3, got 4"),
    (
        lambda g, x: g.gather_elements(x, np.zeros((3, 1, 1, 1), int), 1),
        "indices: (3, 1, 1, 1) exceeds (2, 4, 10, 12) along another dimension than axis 1",
    ),
    (lambda g, x: g.gather_nd(x, [[0, -5]]), "indices: -5 is out of range for sizes of (2, 4)"),
    (lambda g, x: g.gather_nd(x, [[0] * 5]), "indices: expect at most 4 indices for (2, 4, 10, 12), got 5"),
    (lambda g, x: g.gather_nd(x, [[0]], 1), "indices: expect the first 1 dimensions of (2, 4, 10, 12), got (1, 1)"),
    (lambda g, x: g.slice(x, 0, 4, 0, -1), "ends: 0:4 leaves nothing of dimension 0 of (2, 4, 10, 12)"),
    (lambda g, x: g.slice(x, 0, 4, 0, 0), "steps: expect another number than 0"),
    (lambda g, x: g.pad(x, 1, "mirror"), "mode: unknown 'mirror'; known: constant, edge, reflect, wrap"),
    (lambda g, x: g.pad(x, (0, 0, -6, 0)), "padding_l: -6 and -6 cut more than dimension 2 of (2, 4, 10, 12)"),
    (lambda g, x: g.pad(x, (1, 2)), "padding: expect one integer, 4 integers or 4 pairs (before, after), got (1, 2)"),
    (lambda g, x: g.tile(x, (1, 2)), "repeats: expect 4 numbers of at least 1, got (1, 2)"),
    (lambda g, x: g.depth_to_space(x, 3), "src: expect (N, C, H, W) with C divisible by 3 x 3, got (2, 4, 10, 12)"),
    (lambda g, x: g.depth_to_space(x, 2, "RCD"), "order: unknown 'RCD'; known: DCR, CRD"),
    (lambda g, x: g.space_to_depth(x, 3), "src: expect (N, C, H, W) with H and W divisible by 3, got (2, 4, 10, 12)"),
    (lambda g, x: g.slice(x, 3, 3, 2), "ends: 3:3 leaves nothing of dimension 2 of (2, 4, 10, 12)"),
    (lambda g, x: g.slice(x, (0, 0), (1, 1), (1, 1)), "starts: expect as many starts, ends, axes and steps"),
    (lambda g, x: g.slice(x, 0, 1, 7), "axes: expect -4..3, got 7"),
    (lambda g, x: g.expand(x, (2, 4, 10, 24)), "shape: (2, 4, 10, 12) does not expand to (2, 4, 10, 24)"),
    (lambda g, x: g.expand(x, (12,)), "shape: (2, 4, 10, 12) does not expand to (12,)"),
    (lambda g, x: g.reorder(x, "any"), "format_tag: expect a layout, got any"),
    (
        lambda g, x: g.rnn(x, ones(1, 1, 3, 1, 6), ones(1, 1, 6, 1, 6)),
        "src_layer: expect (T, N, C), got (2, 4, 10, 12)",
    ),
    (lambda g, x: g.rnn(ones(5, 2, 3), ones(3, 6), ones(6, 6)), "weights_layer: expect (L, D, C, G, H), got (3, 6)"),
    (
        lambda g, x: g.lstm(ones(5, 2, 3), ones(1, 1, 3, 4, 6), ones(1, 1, 6, 4, 6), None, ones(1, 1, 2, 6)),
        "src_iter_c: expect both initial states or neither",
    ),
    (
        lambda g, x: g.gru(ones(5, 2, 3), ones(1, 1, 3, 3, 6), ones(1, 1, 6, 4, 6)),
        "weights_iter: expect (1, 1, 6, 3, 6), got (1, 1, 6, 4, 6)",
    ),
    (
        lambda g, x: g.rnn(ones(5, 2, 3), ones(1, 1, 3, 1, 6), ones(1, 1, 6, 1, 6), direction="up"),
        "direction: unknown 'up'; known: left2right",
    ),
    (lambda g, x: g.eltwise(x, "relu", engine="gpu"), "engine: expect cpu, opencl or opencl:<index>, got 'gpu'"),
    (lambda g, x: g.eltwise(x, "relu", dtype="int24"), "dtype: unknown data type 'int24'"),
    (lambda g, x: g.constant(np.zeros(3, np.complex64)), "constant: unknown data type 'complex64'"),
]


@pytest.mark.parametrize(("mistake", "expected"), ERRORS, ids=[text[:60] for _, text in ERRORS])
def test_a_mistake_is_reported_where_it_is_made(mistake: Callable[[Graph, Value], object], expected: str) -> None:
    g = Graph("g")
    x = g.input("x", (2, 4, 10, 12))
    with pytest.raises(GraphError) as caught:
        mistake(g, x)
    assert expected in str(caught.value)


def _computed(build: Callable[[Graph, Value], Value], x: NDArray[Any], dtype: str = "float32") -> NDArray[Any]:
    """Return what a graph of one input computes, the same as built and optimised."""
    g = Graph("g")
    g.output("y", build(g, g.input("x", x.shape, dtype)))
    plain = run_wire(*g.to_wire(optimize=False), {"x": x})["y"]
    np.testing.assert_array_equal(run_wire(*g.to_wire(), {"x": x})["y"], plain)
    return plain


def test_slices_and_expansions_are_numpys() -> None:
    x = np.arange(2 * 4 * 10 * 12.0).reshape(2, 4, 10, 12)
    got = _computed(lambda g, v: g.slice(v, (1, 0, 2), (3, 9, 99), (1, 2, 3), (1, 4, 3)), x)
    np.testing.assert_array_equal(got, x[:, 1:3, 0:9:4, 2::3])
    got = _computed(lambda g, v: g.expand(g.slice(v, -1, 10, 2), (2, 4, 5, 12)), x)
    np.testing.assert_array_equal(got, np.broadcast_to(x[:, :, -1:], (2, 4, 5, 12)))
    # Views of constants become constants.
    table = np.arange(24, dtype=np.float32).reshape(2, 12)
    g = Graph("g")
    turned = g.expand(g.slice(g.transpose(g.constant(table)), 1, 12, 0, 5), (4, 3, 2))
    g.output("y", turned)
    wire, constants = g.to_wire()
    assert wire["nodes"] == []
    np.testing.assert_array_equal(constants[0].to_array(), np.broadcast_to(table.T[1:12:5], (4, 3, 2)))
