"""Random graphs that are rich in what the passes look for: views of constants, identities, affine chains, residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from poolrt import Graph, Value

Array = NDArray[Any]


@st.composite
def graphs(draw: st.DrawFn, implementation: str = "", views: bool = False) -> tuple[Graph, dict[str, Array]]:
    """Draw a graph of up to 14 operations on small images, and values for its inputs; with ``views`` many of these."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    g = Graph("random", implementation=implementation)
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(2, 5)), draw(st.integers(2, 5)))
    values = [g.input("x", shape)]
    inputs = {"x": random.standard_normal(shape)}
    for _ in range(draw(st.integers(1, 14))):
        # Mostly the latest value, so that chains form; sometimes an older one, so that values get several readers.
        older = draw(st.integers(0, 9)) == 0
        source = values[draw(st.integers(0, len(values) - 1))] if older else values[-1]
        peers = [value for value in values if value.shape == source.shape]
        peer = peers[draw(st.integers(0, len(peers) - 1))]
        operations = _IMAGES if source.ndim == 4 else _MATRICES
        operation = draw(st.sampled_from([*operations, *_VIEWS] if views else operations))
        values.append(operation(g, source, peer, random))
    g.output("last", values[-1])
    if draw(st.booleans()):
        g.output("inner", values[draw(st.integers(1, len(values) - 1))])
    return g, inputs


def _array(random: np.random.Generator, *shape: int) -> Array:
    return random.standard_normal(shape).astype(np.float32)


def _channelwise(g: Graph, x: Value, random: np.random.Generator) -> Any:
    """Return numbers for each channel in one of the forms that models use."""
    channels, behind = x.shape[1], (1,) * (x.ndim - 2)
    numbers = _array(random, channels)
    match int(random.integers(4)):
        case 0:
            return numbers.reshape(1, -1, *behind)
        case 1:
            return numbers.reshape(-1, *behind).astype(np.float64)
        case 2 if behind:
            return g.unsqueeze(numbers, tuple(range(1, 1 + len(behind))))
        case _:
            return float(numbers[0])


def _arithmetic(algorithm: str, swapped: bool = False) -> Callable[..., Value]:
    def operation(g: Graph, x: Value, _: Value, random: np.random.Generator) -> Value:
        other = _channelwise(g, x, random)
        return g.binary(other, x, algorithm) if swapped else g.binary(x, other, algorithm)

    return operation


def _convolution(g: Graph, x: Value, _: Value, random: np.random.Generator) -> Value:
    groups = 2 if x.shape[1] % 2 == 0 and random.integers(2) else 1
    outputs = 2 * int(random.integers(1, 3))
    kernel = int(random.integers(1, 3)) * 2 - 1
    weights = _array(random, outputs, x.shape[1] // groups, kernel, kernel)
    bias = _array(random, outputs) if random.integers(2) else None
    return g.convolution(x, weights, bias, padding=kernel // 2, groups=groups)


def _same_convolution(g: Graph, x: Value, _: Value, random: np.random.Generator) -> Value:
    return g.convolution(x, _array(random, x.shape[1], x.shape[1], 1, 1))


def _batch_normalization(g: Graph, x: Value, _: Value, random: np.random.Generator) -> Value:
    mean, scale, shift = (_array(random, x.shape[1]) for _ in range(3))
    return g.batch_normalization(x, mean, random.uniform(0.5, 2, x.shape[1]), scale, shift)


def _residual(g: Graph, x: Value, peer: Value, random: np.random.Generator) -> Value:
    left, right = (peer, x) if random.integers(2) else (x, peer)
    return g.sum([left, right]) if random.integers(2) else g.binary(left, right, "add")


def _inner_product(g: Graph, x: Value, _: Value, random: np.random.Generator) -> Value:
    inputs = x.shape[1] if x.ndim == 2 else int(np.prod(x.shape[1:]))
    flat = g.reshape(x, (x.shape[0], inputs))
    return g.inner_product(flat, _array(random, 3, inputs), _array(random, 3))


def _matmul(g: Graph, x: Value, _: Value, random: np.random.Generator) -> Value:
    bias = _array(random, 3) if random.integers(2) else None
    return g.matmul(x, g.transpose(_array(random, 3, x.shape[-1])), bias)


_SHARED: list[Callable[..., Value]] = [
    lambda g, x, peer, random: g.eltwise(x, "relu"),
    lambda g, x, peer, random: g.eltwise(x, "relu"),
    lambda g, x, peer, random: g.eltwise(x, "relu", 0.1),
    lambda g, x, peer, random: g.eltwise(x, "linear"),
    lambda g, x, peer, random: g.eltwise(x, "tanh"),
    lambda g, x, peer, random: g.sum([x]),
    lambda g, x, peer, random: g.sum([x, peer, x]),
    lambda g, x, peer, random: g.concat([x, peer], 0),
    lambda g, x, peer, random: g.binary(x, peer, "mul"),
    lambda g, x, peer, random: g.softmax(x, 1),
    lambda g, x, peer, random: g.reshape(g.reshape(x, (-1,)), x.shape),
    lambda g, x, peer, random: g.transpose(g.transpose(x), tuple(range(x.ndim))[::-1]),
    _arithmetic("add"), _arithmetic("mul"), _arithmetic("sub"), _arithmetic("div"),
    _arithmetic("add", True), _arithmetic("mul", True), _arithmetic("sub", True),
    _batch_normalization, _batch_normalization, _residual, _residual,
]  # fmt: skip
_IMAGES = [*_SHARED, _convolution, _convolution, _same_convolution, _same_convolution, _inner_product]
_MATRICES = [*_SHARED, _inner_product, _matmul]


def _slice(g: Graph, x: Value, _: Value, random: np.random.Generator) -> Value:
    starts = [int(random.integers(0, size)) for size in x.shape]
    return g.slice(x, starts, x.shape, range(x.ndim), [int(random.integers(1, 3)) for _ in x.shape])


def _expand(g: Graph, x: Value, _: Value, random: np.random.Generator) -> Value:
    axis = int(random.integers(x.ndim))
    return g.expand(g.slice(x, 0, 1, axis), [3 if a == axis else size for a, size in enumerate(x.shape)])


def _transpose(g: Graph, x: Value, _: Value, random: np.random.Generator) -> Value:
    return g.transpose(x, [int(axis) for axis in random.permutation(x.ndim)])


def _reorder(g: Graph, x: Value, _: Value, random: np.random.Generator) -> Value:
    tags = {2: ["ba", "Ab4a"], 4: ["acdb", "aBcd16b", "ABcd2a3b"]}
    return g.reorder(x, tags[x.ndim][int(random.integers(len(tags[x.ndim])))])


def _matrix(g: Graph, x: Value, _: Value, random: np.random.Generator) -> Value:
    return g.reshape(x, (x.shape[0], -1)) if x.ndim == 4 else g.reshape(x, (*x.shape, 1, 1))


_VIEWS: list[Callable[..., Value]] = [_slice, _slice, _expand, _transpose, _transpose, _reorder, _reorder, _matrix]
