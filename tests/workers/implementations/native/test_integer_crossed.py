"""Products of rows of 8-bit integers by half the multiplications, on AVX2: exact for all numbers, loops without the stack."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    InnerProduct,
    Matmul,
    MemoryDesc,
    PrimitiveAttr,
    Quantisation,
    scales_of,
    zero_points_of,
)
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_desc
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from poolrt.workers.kernels.native.limits import CROSSED_GROUPS
from poolrt.workers.kernels.native.point_limits import LEAST_POINT, MOST_POINT
from tests.workers.kernels.native.test_conv import loops_with_multiplications
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

from .test_integer_bytes import LIMITS, largest
from .test_integer_convolution import Shape, described, drawn, sums

Array = NDArray[Any]
TARGET = target_of("x86-64-v3")


def generators(pd: PrimitiveDesc) -> list[str]:
    return [spec.generator for spec in pd.program().kernels]


def matmul(rows: int, depth: int, outputs: int, left: str = "u8", right: str = "s8", result: str = "s32") -> Matmul:
    weights = MemoryDesc((depth, outputs), right, "any")
    return Matmul(MemoryDesc((rows, depth), left), weights, None, MemoryDesc((rows, outputs), result))


@pytest.mark.parametrize("right", ["s8", "u8"])
@pytest.mark.parametrize("left", ["u8", "s8"])
@pytest.mark.parametrize("shape", [(24, 340, 37), (31, 516, 17), (85, 64, 50)], ids=str)
def test_sums_are_exact(native: NativeRunner, shape: tuple[int, int, int], left: str, right: str) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    rows, depth, outputs = shape
    # Given the least and the greatest numbers of both sides, and zero points that copies subtract or that are beyond these
    src, weights = largest(rng, left, rows, depth), largest(rng, right, depth, outputs)
    src[0], src[-1] = LIMITS[left]
    weights[:, 0], weights[:, -1] = (-128, 127) if right == "s8" else (0, 255)
    point = random.choice([LEAST_POINT, 0, 77, MOST_POINT, 40000])
    pd = primitive_desc(
        matmul(rows, depth, outputs, left, right), PrimitiveAttr((), (), (Quantisation(Arg.SRC),)), TARGET
    )
    # When they are multiplied
    args = {Arg.SRC: src, Arg.WEIGHTS: weights, zero_points_of(Arg.SRC): np.array([point])}
    got = native.results(pd, args)[Arg.DST]
    # Then it is what 64-bit arithmetic gives
    assert pd.impl_name() == "native:packed_pairs"
    assert "integer_crossed" in generators(pd)
    want = (src.astype(np.int64) - point) @ weights.astype(np.int64)
    np.testing.assert_array_equal(got, want.astype(np.int32), str(point))


def test_results_are_scaled_and_biased(native: NativeRunner) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    src, weights = largest(rng, "u8", 50, 128), largest(rng, "s8", 60, 128)
    scale, bias = rng.uniform(0.001, 0.002, 60).astype(np.float32), rng.normal(size=60).astype(np.float32)
    dims = MemoryDesc((60, 128), "s8", "any"), MemoryDesc((60,), "f32"), MemoryDesc((50, 60), "f32")
    op = InnerProduct(MemoryDesc((50, 128), "u8"), *dims)
    attr = PrimitiveAttr((), (Quantisation(Arg.WEIGHTS, 1),), (Quantisation(Arg.SRC, 0, (9,)),))
    pd = primitive_desc(op, attr, TARGET)
    args = {Arg.SRC: src, Arg.WEIGHTS: weights, Arg.BIAS: bias, scales_of(Arg.WEIGHTS): scale}
    got = native.results(pd, args)[Arg.DST]
    assert "integer_crossed" in generators(pd)
    want = (src - 9.0) @ (weights.T * scale.astype(np.float64)) + bias
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("right", ["s8", "u8"])
@pytest.mark.parametrize("shape", [(26, 70, 37), (31, 65, 50), (24, 72, 48)], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_batches_are_exact(native: NativeRunner, shape: tuple[int, int, int], right: str, turned: bool) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    rows, depth, columns = shape
    # Given a matrix that two others are multiplied by, whose last group of inputs is not full, the greatest sums among theirs
    src, weights = largest(rng, "u8", 2, rows, depth), largest(rng, right, 1, depth, columns)
    src[0, -1], weights[0, :, -1] = 255, LIMITS[right][1]
    points = int(rng.integers(256)), int(rng.integers(LEAST_POINT, MOST_POINT + 1))
    uses = tuple(Quantisation(arg, 0, (point,)) for arg, point in zip((Arg.SRC, Arg.WEIGHTS), points, strict=True))
    md = MemoryDesc(weights.shape, right, "acb" if turned else "")
    op = Matmul(MemoryDesc(src.shape, "u8"), md, None, MemoryDesc((2, rows, columns), "s32"))
    pd = primitive_desc(op, PrimitiveAttr((), (), uses), TARGET)
    got = native.results(pd, {Arg.SRC: src, Arg.WEIGHTS: weights})[Arg.DST]
    assert "integer_crossed_batch" in generators(pd)
    want = (src.astype(np.int64) - points[0]) @ (weights.astype(np.int64) - points[1])
    np.testing.assert_array_equal(got, want.astype(np.int32), str(points))


@pytest.mark.parametrize("strides", [(1, 1), (2, 3)], ids=str)
def test_pointwise_convolutions_are_products_of_all_positions(native: NativeRunner, strides: tuple[int, int]) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    # Given two images whose last tiles are not full, or whose positions are sampled
    shape = Shape(68, 50, 1, (1, 1), strides, 1, (0, 0), (9, 25))
    src, weights = drawn(rng, shape, "u8")
    point = int(rng.integers(256))
    pd = primitive_desc(
        described(shape, src, "u8", None, "s32"), PrimitiveAttr((), (), (Quantisation(Arg.SRC),)), TARGET
    )
    got = native.results(pd, {Arg.SRC: src, Arg.WEIGHTS: weights, zero_points_of(Arg.SRC): np.array([point])})
    assert pd.impl_name() == "native:integer_pairs"
    assert "integer_crossed" in generators(pd)
    np.testing.assert_array_equal(got[Arg.DST], sums(shape, src, weights, point), str(point))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    "sizes", [(2, 96, 50, 1, (29, 31)), (1, 416, 24, 2, (45, 51)), (1, 64, 33, 1, (1, 2300))], ids=str
)
def test_pointwise_convolutions_of_many_positions_widen_them_by_strips(
    native: NativeRunner, sizes: tuple[int, int, int, int, tuple[int, int]], signed: bool
) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    images, inputs, outputs, stride, size = sizes
    # Given images whose strips begin amid a line, the least and the greatest numbers among theirs, and sampled positions
    dtype = "s8" if signed else "u8"
    shape = Shape(inputs, outputs, 1, (1, 1), (stride, stride), 1, (0, 0), size)
    src, weights = largest(rng, dtype, images, inputs, *size), largest(rng, "s8", outputs, inputs, 1, 1)
    src[:, :, 0, 0], src[:, :, -1, -1] = LIMITS[dtype]
    weights[0], weights[-1] = -128, 127
    point = random.choice([LEAST_POINT, 0, 77, MOST_POINT, 40000])
    attr = PrimitiveAttr((), (), (Quantisation(Arg.SRC),))
    pd = primitive_desc(described(shape, src, dtype, None, "s32"), attr, TARGET)
    got = native.results(pd, {Arg.SRC: src, Arg.WEIGHTS: weights, zero_points_of(Arg.SRC): np.array([point])})
    # Then sums are exact, and no copy of the whole source is made
    assert pd.impl_name() == "native:integer_pairs"
    assert generators(pd) == ["integer_terms", "integer_crossed_strips"]
    np.testing.assert_array_equal(got[Arg.DST], sums(shape, src, weights, point).astype(np.int32), str(point))


@pytest.mark.parametrize(
    "sizes", [(23, 512, 512), (64, 512, 16), (24, 64, 64), (40, 4 * CROSSED_GROUPS + 4, 32), (64, 510, 64)], ids=str
)
def test_other_products_keep_all_multiplications(sizes: tuple[int, int, int]) -> None:
    assert "integer_conv" in generators(primitive_desc(matmul(*sizes), PrimitiveAttr(), TARGET))
    for level in ("x86-64-v2", "x86-64-v4"):
        pd = primitive_desc(matmul(64, 512, 512), PrimitiveAttr(), target_of(level))
        assert "integer_conv" in generators(pd)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
def test_no_vector_lives_on_the_stack_inside_of_a_loop(tmp_path: Path) -> None:
    pd = primitive_desc(matmul(85, 64, 64), PrimitiveAttr(), TARGET)
    (spec,) = (kernel for kernel in pd.program().kernels if kernel.generator == "integer_crossed")
    found = loops_with_multiplications(compile_kernel(spec, TARGET.instructions), tmp_path)
    # Tiles of four and of three rows multiply once for four inputs and a vector of outputs, of which there are two.
    assert {sum("vpmaddwd" in line for line in body) for body in found} >= {8, 6}
    for body in found:
        assert not [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line], body
