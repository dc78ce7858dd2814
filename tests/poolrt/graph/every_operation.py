"""One small graph for each operation beyond plain networks, with options that a plan has to get right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from poolrt import Graph, Value

Array = NDArray[Any]
Build = Callable[[Graph, Value], "Value | tuple[Value, ...]"]


def array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return np.abs(array(*shape)) + np.float32(0.5)


IMAGE = (2, 6, 7, 9)
SEQUENCE = (4, 3, 5)


def _recurrent(kind: str, gates: int, states: int, bias_gates: int, **attrs: Any) -> Build:
    def build(g: Graph, x: Value) -> tuple[Value, ...]:
        directions = 2 if "bidirectional" in attrs.get("direction", "") else 1
        layers, hidden = attrs.get("layers", 1), 4
        options = {name: value for name, value in attrs.items() if name != "layers"}
        wide, deep = array(layers, directions, 5, gates, hidden), array(layers, directions, hidden, gates, hidden)
        bias = array(layers, directions, bias_gates, hidden)
        initial = [array(layers, directions, 3, hidden, seed=n) for n in range(states)]
        result: tuple[Value, ...] = getattr(g, kind)(x, wide, deep, bias, *initial, **options)
        return result

    return build


OPERATIONS: Final[dict[str, tuple[tuple[int, ...], Build]]] = {
    "deconvolution": (IMAGE, lambda g, x: g.deconvolution(x, array(4, 3, 3, 2), array(4), strides=2, padding=1, groups=2)),
    "cubic": (IMAGE, lambda g, x: g.resampling(x, "cubic", factors=1.7, coordinates="asymmetric", exclude_outside=True)),
    "resampling": (IMAGE, lambda g, x: (g.resampling(x, "nearest", (5, 20)), g.resampling(x, "linear", factors=1.7))),
    "grid_sample": (
        IMAGE,
        lambda g, x: g.grid_sample(x, g.transpose(g.slice(x, 0, 2, 1), (0, 2, 3, 1)), "cubic", padding="border"),
    ),
    "roi_align": (
        IMAGE,
        lambda g, x: g.roi_align(x, positive(2, 4) * 3, np.array([1, 0]), (3, 2), "max", scale=0.7),
    ),
    "reduction": (IMAGE, lambda g, x: (g.reduction(x, "mean", (1, 3)), g.reduction(x, "max", 2, keep_dims=False))),
    "norms": (IMAGE, lambda g, x: g.reduction(x, "norm_lp_sum", 1, p=3, eps=1e-3, keep_dims=False)),
    "prelu": (IMAGE, lambda g, x: g.prelu(x, array(6, 1, 1))),
    "shuffle": (IMAGE, lambda g, x: g.shuffle(x, 1, 3)),
    "layer_normalization": (IMAGE, lambda g, x: (g.layer_normalization(x, array(9), array(9)), g.layer_normalization(x))),
    "rotary": (IMAGE, lambda g, x: g.rotary(x, array(1, 6, 1, 4), array(1, 6, 1, 4), True)),
    "rms_normalization": (IMAGE, lambda g, x: (g.rms_normalization(x, array(9)), g.rms_normalization(x, epsilon=0.5))),
    "group_normalization": (IMAGE, lambda g, x: g.group_normalization(x, 3, array(6), array(6))),
    "batch_normalization": (IMAGE, lambda g, x: g.batch_normalization(x, scale=array(6))),
    "given statistics": (IMAGE, lambda g, x: g.group_normalization(x, 2, mean=array(2, 2), variance=positive(2, 2))),
    "attention": (
        IMAGE,
        lambda g, x: g.attention(
            q := g.transpose(x, (0, 2, 1, 3)), g.slice(q, 0, 5, 2), g.slice(q, (1, 0), (6, 4), (2, 3)), array(1, 7, 1, 5),
            causal=True,
        ),
    ),
    "attention of views": (
        IMAGE,
        lambda g, x: g.transpose(g.attention(y := g.transpose(x, (0, 2, 1, 3)), y, y, scale=0.5), (0, 2, 1, 3)),
    ),
    "gather": (IMAGE, lambda g, x: (g.gather(x, [[3, -1], [0, 5]], 1), g.gather(g.transpose(x, (1, 0, 3, 2)), 2, -1))),
    "gather_elements": (
        IMAGE, lambda g, x: g.gather_elements(x, np.random.default_rng(1).integers(-7, 7, (2, 4, 5, 9)), 2)
    ),
    "gather_nd": (IMAGE, lambda g, x: (g.gather_nd(x, [[[0, 5], [1, -6]]]), g.gather_nd(x, [[[2]], [[-3]]], 1))),
    "select": (
        IMAGE, lambda g, x: g.select(g.binary(x, 0.25, "gt", dtype=bool), g.transpose(x, (0, 1, 2, 3)), array(6, 1, 9))
    ),
    "logic": (
        IMAGE,
        lambda g, x: g.binary(g.binary(x, 0.5, "lt", dtype=bool), g.binary(x, array(7, 9), "ge", dtype=bool), "and"),
    ),
    "arg_reduction": (IMAGE, lambda g, x: (g.arg_max(x, -1, keep_dims=False), g.arg_min(x, 1, dtype="int32"))),
    "pad": (
        IMAGE,
        lambda g, x: (g.pad(x, [(0, 0), (1, 0), (-2, 3), (0, -1)], value=2.5), g.pad(x, (0, 1, 2, 3), "reflect")),
    ),
    "tile": (IMAGE, lambda g, x: (g.tile(x, (1, 2, 1, 3)), g.slice(x, (5, 8), (0, -100), (1, 3), (-2, -1)))),
    "blocks of pixels": (
        IMAGE,
        lambda g, x: (
            g.depth_to_space(y := g.concat([x, x], 1), 2), g.depth_to_space(y, 2, "CRD"),
            g.space_to_depth(g.slice(x, (0, 0), (6, 6), (2, 3)), 3),
        ),
    ),
    "scatter": (
        IMAGE,
        lambda g, x: (
            g.scatter_elements(x, np.random.default_rng(1).integers(-7, 7, (2, 4, 5, 9)), array(2, 4, 5, 9), 2, "add"),
            g.scatter_nd(x, [[1, 2], [0, -1], [1, 2]], array(3, 7, 9)),
        ),
    ),
    "cumulative_sum": (
        IMAGE, lambda g, x: (g.cumulative_sum(x, -1), g.cumulative_sum(x, 1, exclusive=True, reverse=True))
    ),
    "non_max_suppression": (
        (3, 7, 4), lambda g, x: g.non_max_suppression(x, array(3, 2, 7), np.array([4, 0.25, 0], np.float32), 4)
    ),
    "non_zero": (IMAGE, lambda g, x: g.non_zero(g.eltwise(x, "relu"))),
    "matmul_nbits": (
        (3, 40),
        lambda g, x: g.matmul_nbits(
            x, np.arange(192, dtype=np.uint8).reshape(6, 2, 16), np.full((6, 2), 0.1), np.full((6, 1), 0x78, np.uint8)
        ),
    ),
    "dynamic_quantise": (IMAGE, lambda g, x: g.dynamic_quantise(x)),
    "dynamic_lstm": (
        (3, 2, 4, 5),
        lambda g, x: g.dynamic_lstm(
            x, np.arange(-50, 50, dtype=np.int8).reshape(5, 4, 5), np.full((4, 5), 1e-4, np.float32),
            np.full((4, 5), 3, np.int32),
            array(2, 5), array(2, 5), backwards=True,
        ),
    ),
    "fold": (
        (2, 3, 3, 2, 5, 9),
        lambda g, x: (g.fold(x, (8, 21), strides=(1, 2), padding=1, dilations=(1, 2)), g.fold(x, (9, 11))),
    ),
    "determinant": ((5, 9, 9), lambda g, x: g.determinant(x)),
    "dft": (
        (3, 2, 12, 2), lambda g, x: (g.dft(x, 2), g.dft(x, -2, 17, inverse=True), g.dft(x, 1, 6, inverse=True, one_sided=True))
    ),
    "tree_leaves": (
        (5, 3),
        lambda g, x: g.tree_leaves(
            x, [[1, 1, 2, 0], [1, 1, 1, 0], [2, 3, 4, 1], [0, 3, 3, 0], [0, 4, 4, 0]], np.zeros((5, 1), np.float32), [0, 2], 2
        ),
    ),
    "top_k": (IMAGE, lambda g, x: (*g.top_k(x, 4), *g.top_k(x, 2, 1, largest=False))),
    "lrn": (IMAGE, lambda g, x: g.lrn(x, 3, 0.5, algorithm="within_channel")),
    "sum": (IMAGE, lambda g, x: g.sum([x, g.eltwise(x, "tanh")], (0.5, -2.0))),
    "comparison": (IMAGE, lambda g, x: g.binary(x, array(6, 1, 9), "gt", dtype=bool)),
    "eltwise": (IMAGE, lambda g, x: (g.eltwise(x, "gelu_tanh"), g.eltwise(x, "round"), g.eltwise(x, "pow", 2.0, 3.0))),
    "slice": (IMAGE, lambda g, x: g.eltwise(g.slice(x, (1, 0, 2), (2, 7, 9), (0, 2, 3), (1, 2, 3)), "tanh")),
    "expand": (IMAGE, lambda g, x: g.binary(x, g.expand(g.slice(x, 0, 1, 1), IMAGE), "sub")),
    "slices of a blocked tensor": (
        IMAGE,
        lambda g, x: g.concat([g.slice(g.convolution(x, array(32, 6, 3, 3)), n, n + 7, 1) for n in (0, 3, 20)], 1),
    ),
    "rnn": (SEQUENCE, _recurrent("rnn", 1, 0, 1, activation="relu", alpha=0.1)),
    "lstm": (SEQUENCE, _recurrent("lstm", 4, 2, 4, direction="bidirectional_concat", clip=0.5)),
    "lstm with peepholes": (SEQUENCE, _recurrent("lstm", 4, 2, 4, weights_peephole=array(1, 1, 3, 4))),
    "gru": (SEQUENCE, _recurrent("gru", 3, 1, 3, direction="right2left")),
    "gru of other functions": (
        SEQUENCE,
        _recurrent("gru", 3, 1, 3, activations=("hardsigmoid", "elu"), alphas=(0.2, 1.0), betas=(0.5, 0.0)),
    ),
    "gru linear before reset": (SEQUENCE, _recurrent("gru", 3, 1, 4, linear_before_reset=True)),
    "matmul of slices": (
        SEQUENCE,
        lambda g, x: g.matmul(g.slice(x, 0, 4, 2), g.transpose(g.slice(x, 1, 5, 2), (0, 2, 1))),
    ),
}  # fmt: skip


def graph_of(name: str, dtype: str = "float32", **options: Any) -> Graph:
    """Return a graph of one input ``x`` and outputs ``y0``, ``y1``, ... for an operation."""
    dims, build = OPERATIONS[name]
    g = Graph(name, **options)
    results = build(g, g.input("x", dims, dtype))
    for number, value in enumerate(results if isinstance(results, tuple) else (results,)):
        g.output(f"y{number}", value)
    return g


def values_of(name: str) -> Array:
    """Return values for the input of an operation's graph."""
    return array(*OPERATIONS[name][0], seed=1)
