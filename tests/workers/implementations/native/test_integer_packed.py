"""Matmul and inner product of 8-bit integers with packed weights: exact sums, requantized results, odd shapes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.cachestore.deferred_dataclass import replace
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
from poolrt.workers.implementations.program import Launch
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

from .test_integer_convolution import INSTRUCTIONS
from .test_integer_convolution import how_of as how_of_many

Array = NDArray[Any]
LIMITS = {"u8": (0, 255), "s8": (-128, 127), "s32": (-(2**31), 2**31 - 1)}
#: Rows, depth, columns.
SHAPES = ((1, 64, 100), (29, 37, 33), (3, 5, 16), (16, 260, 7))


def drawn(rng: np.random.Generator, dtype: str, *dims: int) -> Array:
    low, high = LIMITS[dtype]
    return rng.integers(low, high + 1, dims)


def how_of(instructions: str, rows: int) -> str:
    """Return how numbers are multiplied with some instructions, if src has a zero point."""
    how = how_of_many(instructions)
    return "vnni" if how == "amx" and rows <= 16 else how


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@pytest.mark.parametrize("weights", ["any", pytest.param("ab", marks=pytest.mark.slow)])
def test_requantized_products_are_those_of_float64_up_to_rounding(
    native: NativeRunner, weights: str, instructions: str
) -> None:
    target = target_of(instructions)
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    for number, (rows, depth, columns) in enumerate(SHAPES[:2] if weights == "any" else SHAPES):
        # Given a product of signed and unsigned numbers with scales, zero points, a bias, an addition and a relu
        dtype, result = ("u8", "s8")[number % 2], ("u8", "s8", "f32", "s32")[number]
        left, right = drawn(rng, dtype, rows, depth), drawn(rng, "s8", depth, columns)
        scale = rng.uniform(0.001, 0.01, columns).astype(np.float32)
        bias, added = rng.normal(size=(1, columns)).astype(np.float32), rng.integers(0, 100, (rows, columns))
        args: dict[int, Array] = {
            Arg.SRC: left, Arg.WEIGHTS: right, Arg.BIAS: bias, scales_of(Arg.WEIGHTS): scale, post_op_src(0): added,
            scales_of(Arg.DST): np.array([0.25], np.float32), zero_points_of(Arg.SRC): np.array([-20]),
            zero_points_of(Arg.DST): np.array([11]),
        }  # fmt: skip
        attr = PrimitiveAttr(
            (PostOp("binary", "add", src1=MemoryDesc((rows, columns), "u8")), PostOp("eltwise", "relu")),
            (Quantisation(Arg.WEIGHTS, 2), Quantisation(Arg.DST)), (Quantisation(Arg.SRC), Quantisation(Arg.DST)),
        )  # fmt: skip
        op = Matmul(
            MemoryDesc(left.shape, dtype, "any"), MemoryDesc(right.shape, "s8", weights),
            MemoryDesc(bias.shape, "f32"), MemoryDesc(added.shape, result, "any"),
        )  # fmt: skip
        value = (left + 20) @ right * scale.astype(np.float64) + bias + added
        value = np.maximum(value, 0.0) / 0.25 + 11
        # When it is computed
        pd = primitive_desc(op, attr, target)
        got = native.results(pd, args)[Arg.DST].astype(np.float64)
        # Then floats are near, and integers are others only if the value is nearly half-way between two
        assert pd.impl_name() == f"native:packed_{how_of(instructions, rows)}"
        if result == "f32":
            np.testing.assert_allclose(got, value, rtol=1e-5)
            continue
        want = np.clip(np.rint(value), *LIMITS[result])
        halfway = np.abs(value - np.floor(value) - 0.5) < 1e-3 + np.abs(value) * 1e-6
        assert np.array_equal(np.where(halfway, got, want), got)
        assert np.abs(got - want).max() <= 1


@pytest.mark.parametrize("instructions", [INSTRUCTIONS[1], *INSTRUCTIONS[3:]])
@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
def test_sums_are_exact(native: NativeRunner, shape: tuple[int, int, int], instructions: str) -> None:
    rows, depth, columns = shape
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    # Given an inner product, and a matmul of the transposed matrix with more dimensions
    for dtype in ("u8", "s8"):
        left, right = drawn(rng, dtype, rows, depth), drawn(rng, "s8", columns, depth)
        bias = rng.integers(-100000, 100000, columns)
        want = left @ right.T + bias
        inner = InnerProduct(
            MemoryDesc(left.shape, dtype, "any"), MemoryDesc(right.shape, "s8", "any"), MemoryDesc((columns,), "s32"),
            MemoryDesc(want.shape, "s32", "any"),
        )  # fmt: skip
        product = Matmul(
            MemoryDesc((1, *left.shape), dtype, "any"), MemoryDesc((1, depth, columns), "s8", "any"),
            MemoryDesc((1, 1, columns), "s32"), MemoryDesc((1, *want.shape), "s32", "any"),
        )  # fmt: skip
        args: dict[int, Array] = {Arg.SRC: left, Arg.WEIGHTS: right, Arg.BIAS: bias}
        same: dict[int, Array] = {Arg.SRC: left[None], Arg.WEIGHTS: right.T[None], Arg.BIAS: bias[None, None]}
        for op, given in ((inner, args), (product, same)):
            # When it is computed
            pd = primitive_desc(op, PrimitiveAttr(), target_of(instructions))
            got = native.results(pd, given)[Arg.DST]
            # Then it is what 64-bit arithmetic gives
            assert pd.impl_name().startswith("native:packed")
            np.testing.assert_array_equal(got.reshape(want.shape), want)


@pytest.mark.parametrize("instructions", [INSTRUCTIONS[1], INSTRUCTIONS[3]])
def test_rows_are_copied_several_at_once(native: NativeRunner, instructions: str) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    # Given rows whose numbers are adjacent or apart, of whole groups or not, and a prime number of rows
    for rows, depth, tag, items in (
        (32, 3, "ba", 2),
        (48, 4, "ba", 3),
        (48, 5, "", 3),
        (36, 8, "", 3),
        (31, 6, "", 31),
    ):
        left, right = drawn(rng, "s8", rows, depth), drawn(rng, "s8", depth, 20)
        op = Matmul(
            MemoryDesc(left.shape, "s8", tag), MemoryDesc(right.shape, "s8", "any"), None, MemoryDesc((rows, 20), "s32")
        )
        pd = primitive_desc(op, PrimitiveAttr(), target_of(instructions))
        program = pd.program()
        copies = [
            run.work
            for run in program.launches
            if isinstance(run, Launch) and program.kernels[run.kernel].generator == "integer_copy"
        ]
        # When they are multiplied, then it is what whole numbers give
        assert copies == [items]
        got = native.results(pd, {Arg.SRC: left, Arg.WEIGHTS: right})[Arg.DST]
        np.testing.assert_array_equal(got, left @ right)


@pytest.mark.parametrize("instructions", [INSTRUCTIONS[1], *INSTRUCTIONS[3:]])
def test_rows_of_weights_are_packed_four_blocks_at_once_and_one_by_one(native: NativeRunner, instructions: str) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    for rows, depth, columns in ((1, 37, 150), (2, 64, 128), (1, 3, 90)):
        left, right = drawn(rng, "u8", rows, depth), drawn(rng, "s8", depth, columns)
        op = Matmul(
            MemoryDesc(left.shape, "u8"), MemoryDesc(right.shape, "s8"), None, MemoryDesc((rows, columns), "s32")
        )
        pd = primitive_desc(op, PrimitiveAttr(), target_of(instructions))
        got = native.results(pd, {Arg.SRC: left, Arg.WEIGHTS: right})[Arg.DST]
        assert pd.impl_name().startswith("native:packed")
        np.testing.assert_array_equal(got, left @ right)


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@pytest.mark.parametrize("dtype", ["u8", "s8"])
def test_zero_points_may_be_given_that_bytes_do_not_hold(native: NativeRunner, dtype: str, instructions: str) -> None:
    """Activations are packed less their zero point, in 16 bits, as far as it is one of a byte."""
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    for rows, depth, columns in SHAPES:
        left, right = drawn(rng, dtype, rows, depth), drawn(rng, "s8", columns, depth)
        op = InnerProduct(
            MemoryDesc(left.shape, dtype, "any"), MemoryDesc(right.shape, "s8", "any"), None,
            MemoryDesc((rows, columns), "s32", "any"),
        )  # fmt: skip
        pd = primitive_desc(op, PrimitiveAttr(zero_points=(Quantisation(Arg.SRC),)), target_of(instructions))
        assert pd.impl_name().startswith("native:packed")
        for point in (0, 1, -128, 255, 128, -129, 256, 40000, -(1 << 20)):
            args = {Arg.SRC: left, Arg.WEIGHTS: right, zero_points_of(Arg.SRC): np.array([point])}
            exact = ((left.astype(np.int64) - point) @ right.T.astype(np.int64)).astype(
                np.int32
            )  # sums wrap at 32 bits
            np.testing.assert_array_equal(native.results(pd, args)[Arg.DST], exact)


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@pytest.mark.parametrize("dtype", ["u8", "s8"])
def test_weights_without_sign_are_multiplied_in_pairs_or_packed_for_vnni_in_each_run(
    native: NativeRunner, dtype: str, instructions: str
) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    for number, (rows, depth, columns) in enumerate(SHAPES):
        left, right = drawn(rng, dtype, rows, depth), drawn(rng, "u8", depth, columns)
        right[:, 0], left[0] = 255, LIMITS[dtype][1]
        tag = ("any", "ab", "ba")[number % 3]
        op = Matmul(
            MemoryDesc(left.shape, dtype, "any"), MemoryDesc(right.shape, "u8", tag), None,
            MemoryDesc((rows, columns), "s32", "any"),
        )  # fmt: skip
        pd = primitive_desc(op, PrimitiveAttr(zero_points=(Quantisation(Arg.SRC),)), target_of(instructions))
        # Constants are packed once for few rows.
        is_packed = "vnni" not in instructions or (tag == "any" and rows <= 8)
        assert pd.impl_name() == ("native:packed_pairs" if is_packed else "native:batch_vnni")
        for point in (0, 128, -129, 40000):
            args = {Arg.SRC: left, Arg.WEIGHTS: right, zero_points_of(Arg.SRC): np.array([point])}
            exact = ((left.astype(np.int64) - point) @ right.astype(np.int64)).astype(np.int32)
            np.testing.assert_array_equal(native.results(pd, args)[Arg.DST], exact, f"{op} {point}")


@pytest.mark.parametrize("dtype", ["u8", "s8"])
def test_few_tiles_add_up_the_weights_that_a_zero_point_is_multiplied_by(native: NativeRunner, dtype: str) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    for rows, counts in ((1, True), (5, True), (6, True), (14, True), (48, True), (60, False)):
        depth, columns = (int(rng.integers(1, 200)) for _ in range(2))
        left, right = drawn(rng, dtype, rows, depth), drawn(rng, "s8", depth, columns)
        # Given a zero point that is known when the product runs
        op = Matmul(
            MemoryDesc(left.shape, dtype), MemoryDesc(right.shape, "s8", "any"), None, MemoryDesc((rows, columns), "s32"),
        )  # fmt: skip
        attr = PrimitiveAttr(zero_points=(Quantisation(Arg.SRC),))
        # When it is computed with the instruction of VNNI, whose sums begin without that point
        pd = primitive_desc(op, attr, target_of("x86-64-v4+avx512_vnni"))
        point = int(rng.integers(-300, 300))
        got = native.results(pd, {Arg.SRC: left, Arg.WEIGHTS: right, zero_points_of(Arg.SRC): np.array([point])})
        # Then no other pass over the weights is needed, and sums are exact
        (kernel,) = (spec for spec in pd.program().kernels if spec.generator == "integer_conv")
        assert dict(kernel.params)["counts"] == counts
        np.testing.assert_array_equal(got[Arg.DST], (left - point) @ right)


@pytest.mark.parametrize("instructions", INSTRUCTIONS[:4])
@pytest.mark.parametrize("left", ["u8", "s8"])
@pytest.mark.parametrize("right", ["u8", "s8"])
@pytest.mark.one_in(4)
def test_few_rows_are_multiplied_by_weights_where_they_are(
    native: NativeRunner, left: str, right: str, instructions: str
) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    target = target_of(instructions)
    how = "vnni" if "vnni" in instructions else "pairs"
    exact = Matmul(MemoryDesc((1, 1), left), MemoryDesc((1, 1), right), None, MemoryDesc((1, 1), "s32"))
    # Given sums of all kinds of bytes whose numbers of rows, columns and inputs are odd, and the largest sums
    for rows, depth, columns in (
        (1, 1, 16),
        (1, 7, 300),
        (3, 130, 77),
        (7, 33, 65),
        (8, 64, 128),
        (2, 513, 530),
        (1, 145, 2060),
    ):
        a, b = drawn(rng, left, rows, depth), drawn(rng, right, depth, columns)
        a[0], b[:, 0] = LIMITS[left][0], LIMITS[right][0]
        a[-1], b[:, -1] = LIMITS[left][1], LIMITS[right][1]
        mask = int(rng.choice((0, 2)))
        points = {zero_points_of(Arg.SRC): np.array([rng.choice((0, 3, 128, -129, 40000))])}
        points[zero_points_of(Arg.WEIGHTS)] = rng.integers(-300, 300, columns if mask else 1)
        minus = [points[zero_points_of(arg)] for arg in (Arg.SRC, Arg.WEIGHTS)]
        args: dict[int, Array] = {Arg.SRC: a, Arg.WEIGHTS: b}
        op = replace(
            exact,
            src=MemoryDesc(a.shape, left),
            weights=MemoryDesc(b.shape, right),
            dst=MemoryDesc((rows, columns), "s32"),
        )
        given = PrimitiveAttr(zero_points=(Quantisation(Arg.SRC), Quantisation(Arg.WEIGHTS, mask)))
        for attr, numbers, want in ((PrimitiveAttr(), {}, a @ b), (given, points, (a - minus[0]) @ (b - minus[1]))):
            # When they are computed
            pd = primitive_desc(op, attr, target)
            got = native.results(pd, {**args, **numbers})[Arg.DST]
            # Then nothing is packed if rows are few, and sums are exact
            assert pd.impl_name() == f"native:packed_{how}"
            in_place = pd.program().kernels[-1].generator == "integer_rows"
            assert in_place == (how == "vnni" or rows <= 4 or attr is given)
            np.testing.assert_array_equal(got, want.astype(np.int32), f"{op} {attr}")


@pytest.mark.parametrize("instructions", INSTRUCTIONS[:4])
def test_products_of_few_rows_are_scaled_added_to_and_rounded(native: NativeRunner, instructions: str) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    for rows, depth, columns, result in ((2, 61, 90, "u8"), (5, 20, 33, "f32")):
        left, right = drawn(rng, "u8", rows, depth), drawn(rng, "s8", depth, columns)
        scale = rng.uniform(0.001, 0.01, columns).astype(np.float32)
        bias, added = rng.normal(size=(1, columns)).astype(np.float32), rng.integers(0, 100, (rows, columns))
        args: dict[int, Array] = {
            Arg.SRC: left, Arg.WEIGHTS: right, Arg.BIAS: bias, scales_of(Arg.WEIGHTS): scale, post_op_src(0): added,
            scales_of(Arg.DST): np.array([0.25], np.float32), zero_points_of(Arg.SRC): np.array([20]),
            zero_points_of(Arg.DST): np.array([11]), zero_points_of(Arg.WEIGHTS): np.array([-5]),
        }  # fmt: skip
        attr = PrimitiveAttr(
            (PostOp("binary", "add", src1=MemoryDesc((rows, columns), "u8")), PostOp("eltwise", "relu")),
            (Quantisation(Arg.WEIGHTS, 2), Quantisation(Arg.DST)),
            (Quantisation(Arg.SRC), Quantisation(Arg.WEIGHTS), Quantisation(Arg.DST)),
        )  # fmt: skip
        op = Matmul(
            MemoryDesc(left.shape, "u8"), MemoryDesc(right.shape, "s8"), MemoryDesc(bias.shape, "f32"),
            MemoryDesc(added.shape, result),
        )  # fmt: skip
        value = (left - 20) @ (right + 5) * scale.astype(np.float64) + bias + added
        value = np.maximum(value, 0.0) / 0.25 + 11
        pd = primitive_desc(op, attr, target_of(instructions))
        assert pd.program().kernels[-1].generator == "integer_rows"
        got = native.results(pd, args)[Arg.DST].astype(np.float64)
        if result == "f32":
            np.testing.assert_allclose(got, value, rtol=1e-5)
            continue
        want = np.clip(np.rint(value), *LIMITS[result])
        halfway = np.abs(value - np.floor(value) - 0.5) < 1e-3 + np.abs(value) * 1e-6
        assert np.array_equal(np.where(halfway, got, want), got)
        assert np.abs(got - want).max() <= 1
