"""Depthwise convolutions of 8-bit integers with VNNI: blocks of channels, padding, pieces of rows, windows of several quads."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from poolrt.workers.desc import Arg, PrimitiveAttr, Quantisation, scales_of, zero_points_of
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from tests.workers.kernels.native.test_conv import loops_with_multiplications
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

from .test_integer_convolution import LIMITS, Shape, described, drawn, sums

TARGET = target_of("x86-64-v4+avx512_vnni")
SHAPES = (
    Shape(1, 1, 17, (3, 3), (1, 1), 1, (1, 1), (6, 9)),
    Shape(1, 1, 64, (2, 1), (1, 1), 1, (0, 0), (3, 7)),
    Shape(1, 1, 100, (5, 5), (1, 2), 1, (2, 2), (7, 17)),
    Shape(1, 1, 130, (3, 4), (2, 1), 2, (2, 3), (9, 14)),
    Shape(1, 1, 65, (1, 7), (1, 3), 1, (0, 3), (2, 29)),
    Shape(1, 1, 72, (3, 3), (1, 1), 1, (1, 1), (3, 131)),
    Shape(1, 1, 33, (9, 3), (1, 1), 3, (12, 3), (5, 3)),
    Shape(1, 1, 20, (7, 7), (2, 2), 1, (3, 3), (1, 1)),
)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["u8", "s8"])
@pytest.mark.parametrize("result", ["s8", "u8"])
def test_results_are_exact(native: NativeRunner, shape: Shape, dtype: str, result: str) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    # Any numbers, the greatest products in the first channels, and zero points, of which src's is in place of 0 in padding.
    src, weights = drawn(rng, shape, dtype)
    src[0, :4], weights[:4] = LIMITS[dtype][1], rng.choice([-128, 127], (4, 1, 1, 1))
    point, other = (random.choice([0, *LIMITS[each], int(rng.integers(*LIMITS[each]))]) for each in (dtype, result))
    given = {int(Arg.SRC): point, int(Arg.DST): other}
    points = tuple(Quantisation(arg) for arg, number in given.items() if number)
    args = {
        Arg.SRC: src,
        Arg.WEIGHTS: weights,
        **{zero_points_of(item.arg): np.array([given[item.arg]]) for item in points},
    }
    # A power of two, by which the division is exact
    args[scales_of(Arg.DST)] = np.array([256], np.float32)
    want = np.clip(np.rint(sums(shape, src, weights, point) / 256) + other, *LIMITS[result])
    # When it is computed
    op = described(shape, src, dtype, None, result)
    pd = primitive_desc(op, PrimitiveAttr((), (Quantisation(Arg.DST),), points), TARGET)
    got = native.results(pd, args)[Arg.DST]
    # Then it is what 64-bit arithmetic gives
    assert pd.impl_name() == "native:depthwise_integer_vnni"
    np.testing.assert_array_equal(got, want, f"{dtype} {point} {other}")


@pytest.mark.parametrize(
    ("shape", "dtype", "result", "name"),
    [
        (SHAPES[0], "u8", "s32", "integer"),
        (Shape(1, 1, 16, (3, 3), (1, 1), 1, (1, 1), (6, 9)), "u8", "u8", "integer"),
        (Shape(1, 1, 64, (20, 1), (1, 1), 1, (10, 0), (6, 90)), "u8", "u8", "integer_vnni"),
        (Shape(1, 1, 64, (1, 41), (1, 1), 1, (0, 20), (6, 90)), "u8", "u8", "integer"),
        (Shape(1, 1, 64, (3, 3), (1, 1), 40, (40, 40), (41, 90)), "u8", "u8", "integer"),
    ],
    ids=["sums", "few channels", "high window", "wide window", "dilated window"],
)
def test_other_windows_and_results_have_sixteen_channels_at_once(
    shape: Shape, dtype: str, result: str, name: str
) -> None:
    op = described(shape, np.zeros((1, shape.groups, *shape.size)), dtype, None, result)
    assert primitive_desc(op, PrimitiveAttr(), TARGET).impl_name() == f"native:depthwise_{name}"
    lacking = target_of("x86-64-v4")
    assert primitive_desc(op, PrimitiveAttr(), lacking).impl_name() == "native:depthwise_integer"


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
def test_no_vector_lives_on_the_stack_in_the_loop_of_a_tile(tmp_path: Path) -> None:
    pd = primitive_desc(described(SHAPES[0], np.zeros((1, 17, 6, 9)), "u8", None, "u8"), PrimitiveAttr(), TARGET)
    spec = next(kernel for kernel in pd.program().kernels if kernel.generator == "integer_depthwise_columns")
    found = loops_with_multiplications(compile_kernel(spec, pd.target.instructions), tmp_path)
    (body,) = (body for body in found if sum("vpdpbusd" in line for line in body) == 16)
    assert not [line for line in body if re.search("zmm.*[(]%rsp|[(]%rsp.*zmm", line)]
