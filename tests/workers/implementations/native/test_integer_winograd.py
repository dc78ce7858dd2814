"""Winograd's products of 8-bit integers: sums exact for all numbers and shapes, what is not supported left to others."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from poolrt.workers.desc import Arg, PrimitiveAttr, Quantisation, zero_points_of
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from poolrt.workers.kernels.native.point_limits import LEAST_POINT, MOST_POINT
from poolrt.workers.kernels.native.winograd_scheme import FACTORS, SCHEMES, Scheme
from tests.workers.kernels.native.test_conv import loops_with_multiplications
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

from .test_integer_convolution import LIMITS, Shape, described, drawn, sums

PLAIN = Shape(32, 32, 1, (3, 3), (1, 1), 1, (1, 1), (8, 8))
TARGET = target_of("x86-64-v3")


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(replace(PLAIN, inputs=19, outputs=37, pad=(0, 2), size=(9, 11)), id="odd sizes"),
        pytest.param(replace(PLAIN, inputs=512, outputs=16, pad=(1, 1), size=(5, 7)), id="most inputs"),
        pytest.param(replace(PLAIN, inputs=16, outputs=16, pad=(1, 1), size=(27, 31)), id="several strips"),
        pytest.param(
            replace(PLAIN, inputs=18, outputs=37, pad=(1, 0), size=(13, 14)), id="half a group of four inputs"
        ),
        pytest.param(
            replace(PLAIN, inputs=512, outputs=16, pad=(1, 1), size=(11, 12)), id="most inputs of many windows"
        ),
        pytest.param(replace(PLAIN, inputs=16, outputs=16, pad=(1, 1), size=(4, 200)), id="rows of several strips"),
        pytest.param(replace(PLAIN, inputs=19, outputs=37, strides=(2, 2), pad=(0, 2), size=(12, 19)), id="stride 2"),
        pytest.param(
            replace(PLAIN, inputs=512, outputs=16, strides=(2, 2), pad=(1, 1), size=(14, 14)), id="stride 2, even"
        ),
        pytest.param(
            replace(PLAIN, inputs=16, outputs=16, strides=(2, 2), pad=(1, 1), size=(55, 59)),
            id="stride 2, several strips",
        ),
    ],
)
@pytest.mark.parametrize("dtype", ["u8", "s8"])
def test_sums_are_exact(native: NativeRunner, shape: Shape, dtype: str) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    # Any numbers in one image, the greatest sums in the other, and a zero point, which padding has in place of 0.
    src, weights = drawn(rng, shape, dtype)
    src[1], weights[0], weights[1] = LIMITS[dtype][1], -128, 127
    point = random.choice([*LIMITS[dtype], int(rng.integers(*LIMITS[dtype]))])
    attr = PrimitiveAttr((), (), (Quantisation(Arg.SRC),))
    # When it is computed
    pd = primitive_desc(described(shape, src, dtype, None, "s32"), attr, TARGET)
    got = native.results(pd, {Arg.SRC: src, Arg.WEIGHTS: weights, zero_points_of(Arg.SRC): np.array([point])})
    # Then it is what 64-bit arithmetic gives
    assert pd.impl_name() == "native:integer_winograd"
    np.testing.assert_array_equal(got[Arg.DST], sums(shape, src, weights, point), f"{dtype} {point}")


@pytest.mark.parametrize("length", range(2, 11))
@pytest.mark.parametrize("stride", [1, 2])
def test_windows_of_two_sizes_give_each_result_of_a_row(stride: int, length: int) -> None:
    scheme, rng = SCHEMES[stride], np.random.default_rng(length)
    src, taps = rng.integers(-9, 9, (length - 1) * stride + 3), rng.integers(-9, 9, 3)
    factors = [np.dot(scheme.taps[min(number, len(scheme.taps) - 1)], taps) for number in range(FACTORS)]
    large, small = scheme.cut(length)
    found, at = [], 0
    for windows in [scheme.large] * large + [scheme.small] * small:
        of = [np.dot(each, src[at : at + len(each)]) if each else 0 for each in windows.factors]
        found += [np.dot(each, np.multiply(of, factors)) for each in windows.results]
        at = stride * len(found)
    scale = 6 if stride == 1 else 1
    assert scale**2 * scheme.inverse % (1 << 32) == 1 << scheme.shift
    assert found == [scale * np.dot(src[n * stride : n * stride + 3], taps) for n in range(length)]


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=str)
def test_sixteen_bits_hold_all_factors(scheme: Scheme) -> None:
    def most(rows: Iterable[tuple[int, ...]]) -> int:
        return max(sum(map(abs, row)) for row in rows)

    # Numbers less their zero point, of which the copy bounds the latter
    largest = max(255 - LEAST_POINT, MOST_POINT + 128)
    factors = (most(windows.factors) ** 2 * largest for windows in (scheme.large, scheme.small))
    # A factor of sources is added to one of weights.
    assert max(factors) + most(scheme.taps) ** 2 * 128 < 1 << 15
    # Sums that are shifted are as they are: a multiple of those of 512 inputs fits.
    assert 9 * 512 * largest * 128 << scheme.shift < 1 << 31 or not scheme.shift


@pytest.mark.parametrize(
    "shape",
    [
        replace(PLAIN, strides=(1, 2)),
        replace(PLAIN, strides=(3, 3), size=(24, 24)),
        replace(PLAIN, kernel=(3, 5)),
        replace(PLAIN, dilation=2),
        replace(PLAIN, groups=2),
        replace(PLAIN, inputs=528),
        replace(PLAIN, outputs=15),
        replace(PLAIN, size=(2, 8)),
        replace(PLAIN, size=(1, 40)),
    ],
    ids=str,
)
def test_other_shapes_are_computed_in_pairs(shape: Shape) -> None:
    src = np.zeros((1, shape.groups * shape.inputs, *shape.size))
    op = described(shape, src, "u8", None, "u8")
    assert primitive_desc(op, PrimitiveAttr(), TARGET).impl_name() == "native:integer_pairs"


def test_other_registers_have_other_implementations() -> None:
    op = described(PLAIN, np.zeros((1, 32, 8, 8)), "u8", None, "u8")
    for instructions, name in (
        ("x86-64-v2", "pairs"),
        ("x86-64-v4", "pairs"),
        ("x86-64-v4+avx512_vnni", "vnni"),
        ("x86-64-v3+avx_vnni", "vnni"),
    ):
        assert primitive_desc(op, PrimitiveAttr(), target_of(instructions)).impl_name() == f"native:integer_{name}"


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize(("size", "multiplications"), [(8, 12), (12, 8)])
def test_no_vector_lives_on_the_stack_inside_of_a_loop(size: int, multiplications: int, tmp_path: Path) -> None:
    # Given few windows, of which six are multiplied pair by pair, or at least 16, of which four are by half the multiplications
    shape = replace(PLAIN, size=(size, size))
    pd = primitive_desc(described(shape, np.zeros((1, 32, size, size)), "u8", None, "u8"), PrimitiveAttr(), TARGET)
    spec = next(kernel for kernel in pd.program().kernels if kernel.generator == "integer_winograd")
    found = loops_with_multiplications(compile_kernel(spec, pd.target.instructions), tmp_path)
    assert multiplications == max(sum("vpmaddwd" in line for line in body) for body in found)
    for body in found:
        assert not [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line], body
