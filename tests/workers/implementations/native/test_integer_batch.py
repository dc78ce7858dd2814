"""Matmul of batches of computed matrices of 8-bit integers: exact sums, requantized results, broadcast batches, odd shapes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
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

from .test_integer_convolution import INSTRUCTIONS, how_of
from .test_integer_packed import LIMITS, drawn

Array = NDArray[Any]
#: Batch dimensions of both sides; rows, depth and columns.
SHAPES = (
    ((3,), (3,), (29, 65, 33)),
    ((2, 1), (1, 3), (7, 63, 65)),
    ((2, 3), (1, 3), (65, 1, 129)),
    ((2,), (2,), (1, 129, 7)),
    ((1, 1), (2, 2), (63, 7, 1)),
    ((1,), (5,), (129, 64, 48)),
    ((4,), (1,), (5, 10, 130)),
    ((2,), (2,), (8, 1, 33)),
)


def how_of_batch(instructions: str) -> str:
    """Return how batches are multiplied with some instructions: not by tiles of AMX."""
    how = how_of(instructions)
    return "vnni" if how == "amx" else "pairs" if how == "bytes" else how


def given(rng: np.random.Generator, number: int, left: str, right: str) -> tuple[Array, Array]:
    first, second, (rows, depth, columns) = SHAPES[number]
    a, b = drawn(rng, left, *first, rows, depth), drawn(rng, right, *second, depth, columns)
    a[..., 0, :], b[..., 0] = LIMITS[left][1], LIMITS[right][1]
    return a, b


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@pytest.mark.parametrize("types", ["u8 u8", "u8 s8", "s8 u8", "s8 s8"])
def test_sums_are_exact(native: NativeRunner, types: str, instructions: str) -> None:
    left, right = types.split()
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    for number in range(len(SHAPES)):
        # Given matrices in any layout, and zero points of both sides and of the result, known before or not
        a, b = given(rng, number, left, right)
        low, high = LIMITS[left]
        points = {Arg.SRC: int(rng.integers(low, high + 1)), Arg.WEIGHTS: int(rng.integers(-300, 300)), Arg.DST: 11}
        if number % 3 == 2:
            points[Arg.WEIGHTS] = 128 if right == "u8" else 0
        known = number % 2 == 0
        attr = PrimitiveAttr(
            (), (), tuple(Quantisation(arg, 0, (point,) if known else ()) for arg, point in points.items())
        )
        want = (a - points[Arg.SRC]).astype(np.int64) @ (b - points[Arg.WEIGHTS]) + points[Arg.DST]
        tag = "any" if number % 2 else "abcd"[: b.ndim - 2] + "abcdef"[b.ndim - 2 : b.ndim][::-1]
        op = Matmul(
            MemoryDesc(a.shape, left, "any"), MemoryDesc(b.shape, right, tag), None,
            MemoryDesc(want.shape, "s32", "any"),
        )  # fmt: skip
        args: dict[int, Array] = {Arg.SRC: a, Arg.WEIGHTS: b}
        if not known:
            args |= {zero_points_of(arg): np.array([point]) for arg, point in points.items()}
        # When they are multiplied
        pd = primitive_desc(op, attr, target_of(instructions))
        # Then results are those of 64-bit arithmetic
        assert pd.impl_name() == f"native:batch_{how_of_batch(instructions)}"
        np.testing.assert_array_equal(native.results(pd, args)[Arg.DST], want, f"{op} {attr}")


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@pytest.mark.parametrize("types", ["u8 u8", "s8 s8"])
def test_requantized_products_are_those_of_float64_up_to_rounding(
    native: NativeRunner, types: str, instructions: str
) -> None:
    left, right = types.split()
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    for number, result in ((0, "u8"), (1, "s8"), (2, "f32"), (3, "s32"), (4, "u8"), (5, "s8"), (6, "u8")):
        # Given scales, zero points, a bias, an addition and a relu
        a, b = given(rng, number, left, right)
        sums = (a - 3.0) @ (b - 5.0)
        added = rng.integers(0, 100, sums.shape)
        bias = rng.normal(size=(1,) * (a.ndim - 1) + b.shape[-1:]).astype(np.float32)
        scale = np.float32(20.0 / max(np.abs(sums).max(), 1.0))
        attr = PrimitiveAttr(
            (PostOp("binary", "add", src1=MemoryDesc(sums.shape, "u8")), PostOp("eltwise", "relu")),
            (Quantisation(Arg.WEIGHTS), Quantisation(Arg.DST)),
            (Quantisation(Arg.SRC), Quantisation(Arg.WEIGHTS), Quantisation(Arg.DST)),
        )  # fmt: skip
        op = Matmul(
            MemoryDesc(a.shape, left, "any"), MemoryDesc(b.shape, right, "any"), MemoryDesc(bias.shape, "f32"),
            MemoryDesc(sums.shape, result, "any"),
        )  # fmt: skip
        args: dict[int, Array] = {
            Arg.SRC: a, Arg.WEIGHTS: b, Arg.BIAS: bias, post_op_src(0): added, scales_of(Arg.WEIGHTS): np.array([scale]),
            scales_of(Arg.DST): np.array([0.25], np.float32), zero_points_of(Arg.SRC): np.array([3]),
            zero_points_of(Arg.WEIGHTS): np.array([5]), zero_points_of(Arg.DST): np.array([11]),
        }  # fmt: skip
        value = np.maximum(sums * np.float64(scale) + bias + added, 0.0) / 0.25 + 11
        # When it is computed
        pd = primitive_desc(op, attr, target_of(instructions))
        got = native.results(pd, args)[Arg.DST].astype(np.float64)
        # Then floats are near, and integers are others only if the value is nearly half-way between two
        assert pd.impl_name() == f"native:batch_{how_of_batch(instructions)}"
        if result == "f32":
            np.testing.assert_allclose(got, value, rtol=1e-5)
            continue
        want = np.clip(np.rint(value), *LIMITS[result])
        halfway = np.abs(value - np.floor(value) - 0.5) < 1e-3 + np.abs(value) * 1e-6
        assert np.array_equal(np.where(halfway, got, want), got)
        assert np.abs(got - want).max() <= 1
