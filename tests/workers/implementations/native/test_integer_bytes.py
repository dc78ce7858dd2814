"""Products of many rows of 8-bit integers on AVX2: exact also if 16 bits do not hold sums of two products."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    InnerProduct,
    Matmul,
    MemoryDesc,
    PostOp,
    PrimitiveAttr,
    Quantisation,
    post_op_src,
    scales_of,
    zero_points_of,
)
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

Array = NDArray[Any]
LEVEL = "x86-64-v3"
LIMITS = {"u8": (0, 255), "s8": (-128, 127)}


def largest(rng: np.random.Generator, dtype: str, *dims: int) -> Array:
    """Return numbers of which half are the least or the most that the data type holds."""
    low, high = LIMITS[dtype]
    return np.where(
        rng.random(dims) < 0.25, low, np.where(rng.random(dims) < 0.3, high, rng.integers(low, high + 1, dims))
    )


def weights_of(rng: np.random.Generator, depth: int, outputs: int) -> Array:
    """Return weights of which sums of two are up to 128 of each sign; those of some blocks of 16 outputs are larger."""
    found = rng.choice((-64, -1, 0, 1, 64), (depth, outputs))
    # The largest sums that 16 bits hold, and the least that they do not, each at the last inputs.
    found[-2:, 1] = (-128, 0) if depth % 2 == 0 else (0, -128)
    found[-2:, 17] = (-127, -2)
    found[-2:, 33] = (127, 2)
    found[:, 48:64] = rng.integers(-128, 128, (depth, min(16, outputs - 48)))
    found[: depth // 4 * 4, 64] = np.resize((64, 64, -127, -1), depth // 4 * 4)
    return found


@pytest.mark.parametrize("dtype", ["u8", "s8"])
@pytest.mark.parametrize("shape", [(33, 700, 190), (37, 515, 233), (128, 260, 128)], ids=str)
def test_sums_are_exact_for_all_weights(native: NativeRunner, shape: tuple[int, int, int], dtype: str) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    rows, depth, outputs = shape
    left, right = largest(rng, dtype, rows, depth), weights_of(rng, depth, outputs)
    left[0], left[-1] = LIMITS[dtype][0], LIMITS[dtype][1]
    src, dst = MemoryDesc((rows, depth), dtype), MemoryDesc((rows, outputs), "s32")
    bias = rng.integers(-100000, 100000, outputs)
    # Given weights as a matrix, packed, and of an inner product; with zero points that bytes hold or not, and without
    for op, given, added in (
        (Matmul(src, MemoryDesc((depth, outputs), "s8"), None, dst), right, 0),
        (Matmul(src, MemoryDesc((depth, outputs), "s8", "any"), None, dst), right, 0),
        (
            InnerProduct(src, MemoryDesc((outputs, depth), "s8", "any"), MemoryDesc((outputs,), "s32"), dst),
            right.T,
            bias,
        ),
    ):
        for point in (None, 0, 3, -129, 40000):
            attr = PrimitiveAttr(zero_points=() if point is None else (Quantisation(Arg.SRC),))
            args = {Arg.SRC: left, Arg.WEIGHTS: given, Arg.BIAS: bias, zero_points_of(Arg.SRC): np.array([point or 0])}
            pd = primitive_desc(op, attr, target_of(LEVEL))
            # When it is computed
            got = native.results(pd, {arg: args[arg] for arg in args if arg in pd.memories()})[Arg.DST]
            # Then it is what 64-bit arithmetic gives
            assert pd.impl_name() == "native:packed_bytes"
            want = (left.astype(np.int64) - (point or 0)) @ right + added
            np.testing.assert_array_equal(got, want.astype(np.int32), f"{op} {point}")


def test_results_are_scaled_added_to_and_rounded(native: NativeRunner) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    rows, depth, outputs = 41, 600, 190
    for dtype, result in (("u8", "u8"), ("s8", "f32")):
        left, right = largest(rng, dtype, rows, depth), weights_of(rng, depth, outputs)
        scale = rng.uniform(0.001, 0.01, outputs).astype(np.float32)
        bias, added = rng.normal(size=(1, outputs)).astype(np.float32), rng.integers(0, 100, (rows, outputs))
        args: dict[int, Array] = {
            Arg.SRC: left, Arg.WEIGHTS: right, Arg.BIAS: bias, scales_of(Arg.WEIGHTS): scale, post_op_src(0): added,
            scales_of(Arg.DST): np.array([2.5], np.float32), zero_points_of(Arg.SRC): np.array([20]),
            zero_points_of(Arg.DST): np.array([11]),
        }  # fmt: skip
        attr = PrimitiveAttr(
            (PostOp("binary", "add", src1=MemoryDesc((rows, outputs), "u8")), PostOp("eltwise", "relu")),
            (Quantisation(Arg.WEIGHTS, 2), Quantisation(Arg.DST)), (Quantisation(Arg.SRC), Quantisation(Arg.DST)),
        )  # fmt: skip
        op = Matmul(
            MemoryDesc(left.shape, dtype), MemoryDesc(right.shape, "s8", "any"), MemoryDesc(bias.shape, "f32"),
            MemoryDesc(added.shape, result),
        )  # fmt: skip
        value = (left - 20) @ right * scale.astype(np.float64) + bias + added
        value = np.maximum(value, 0.0) / 2.5 + 11
        pd = primitive_desc(op, attr, target_of(LEVEL))
        assert pd.impl_name() == "native:packed_bytes"
        got = native.results(pd, args)[Arg.DST].astype(np.float64)
        if result == "f32":
            np.testing.assert_allclose(got, value, rtol=1e-5)
            continue
        want = np.clip(np.rint(value), *LIMITS[result])
        halfway = np.abs(value - np.floor(value) - 0.5) < 1e-3 + np.abs(value) * 1e-6
        assert np.array_equal(np.where(halfway, got, want), got)


def test_few_rows_and_small_products_are_multiplied_in_pairs() -> None:
    for rows, depth, outputs, level in ((31, 512, 512, LEVEL), (64, 64, 64, LEVEL), (64, 512, 512, "x86-64-v4")):
        op = Matmul(
            MemoryDesc((rows, depth), "u8"),
            MemoryDesc((depth, outputs), "s8"),
            None,
            MemoryDesc((rows, outputs), "s32"),
        )
        assert primitive_desc(op, PrimitiveAttr(), target_of(level)).impl_name() == "native:packed_pairs"
