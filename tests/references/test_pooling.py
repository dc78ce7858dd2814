"""The winners of a maximum against ONNX Runtime, and the gradients of pooling against differences."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import MemoryDesc, Pooling

from .finite_differences import numeric_gradient
from .onnx_node import run_node
from .pooling import pooling, pooling_backward, pooling_winners

SETTINGS = [
    ((6, 5), (3, 2), (2, 1), (0, 0), (0, 0), (0, 0)),
    ((5, 6), (3, 3), (2, 2), (0, 1), (1, 2), (0, 1)),
    ((8,), (4,), (3,), (1,), (2,), (3,)),
    ((3, 4, 3), (2, 2, 3), (1, 2, 1), (0, 0, 0), (1, 0, 1), (0, 1, 2)),
    ((3,), (1,), (1,), (0,), (2,), (2,)),
]


def pooled(number: int, algorithm: str) -> Pooling:
    sizes, kernel, strides, dilations, left, right = SETTINGS[number]
    out = tuple(
        (s + a + b - ((k - 1) * (d + 1) + 1)) // st + 1
        for s, k, st, d, a, b in zip(sizes, kernel, strides, dilations, left, right, strict=True)
    )
    src, dst = MemoryDesc((2, 2, *sizes), "f64"), MemoryDesc((2, 2, *out), "f64")
    return Pooling(src, dst, algorithm, kernel, strides, dilations, left, right)


@pytest.mark.parametrize("number", range(len(SETTINGS)))
@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
def test_gradients_of_pooling_agree_with_differences(algorithm: str, number: int) -> None:
    op = pooled(number, algorithm)
    rng = np.random.default_rng(1)
    # Values a hundred steps apart: no difference changes the winner of a window.
    src = rng.permutation(np.prod(op.src.dims)).reshape(op.src.dims) * 1e-3
    errors = rng.standard_normal(op.dst.dims)
    winners = pooling_winners(op, src) if algorithm == "max" else None
    # A window wholly outside has a maximum of minus infinity, whose differences mean nothing.
    seen = np.isfinite(pooling(op, src))
    wanted = numeric_gradient(lambda x: np.where(seen, pooling(op, x), 0.0), src, errors)
    np.testing.assert_allclose(pooling_backward(op, errors, winners), wanted, rtol=1e-6, atol=1e-8)


def test_the_first_of_equal_elements_wins_and_the_number_counts_padding() -> None:
    src, dst = MemoryDesc((1, 1, 3), "f64"), MemoryDesc((1, 1, 4), "f64")
    op = Pooling(src, dst, "max", (3,), (1,), (0,), (2,), (1,))
    assert pooling_winners(op, np.array([[[4.0, 4.0, 7.0]]])).ravel().tolist() == [2, 1, 2, 1]


def test_winners_agree_with_the_maxima_that_onnxruntime_finds() -> None:
    op = pooled(0, "max")
    src = np.random.default_rng(2).standard_normal(op.src.dims)
    got = run_node("MaxPool", [src], kernel_shape=op.kernel, strides=op.strides)
    winners = pooling_winners(op, src)
    for at in np.ndindex(op.dst.dims):
        down, right = divmod(int(winners[at]), op.kernel[1])
        place = (*at[:2], at[2] * op.strides[0] + down, at[3] * op.strides[1] + right)
        assert np.float32(src[place]) == got[at]
