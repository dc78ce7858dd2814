"""Depthwise convolutions of 8-bit integers on 256-bit registers: channels behind whole vectors, last positions of a row."""

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

TARGET = target_of("x86-64-v3")
SHAPES = (
    Shape(1, 1, 9, (3, 3), (1, 1), 1, (1, 1), (6, 9)),
    Shape(1, 1, 16, (2, 1), (1, 1), 1, (0, 0), (3, 7)),
    Shape(1, 1, 31, (5, 5), (1, 2), 1, (2, 2), (7, 17)),
    Shape(1, 1, 40, (3, 4), (2, 1), 2, (2, 3), (9, 14)),
    Shape(1, 1, 65, (1, 7), (1, 3), 1, (0, 3), (2, 29)),
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["u8", "s8"])
@pytest.mark.parametrize("result", ["s32", "u8"])
def test_results_are_exact(native: NativeRunner, shape: Shape, dtype: str, result: str) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    # Any numbers, the greatest products in the first channels, and a zero point, which padding has in place of 0.
    src, weights = drawn(rng, shape, dtype)
    src[0, :4], weights[:4] = LIMITS[dtype][1], rng.choice([-128, 127], (4, 1, 1, 1))
    point = random.choice([0, *LIMITS[dtype], int(rng.integers(*LIMITS[dtype]))])
    points = [Quantisation(Arg.SRC)] if point else []
    args = {Arg.SRC: src, Arg.WEIGHTS: weights, **({zero_points_of(Arg.SRC): np.array([point])} if point else {})}
    want, scales = sums(shape, src, weights, point), []
    if result == "u8":
        # A power of two, by which the division is exact
        scales, args[scales_of(Arg.DST)] = [Quantisation(Arg.DST)], np.array([256], np.float32)
        want = np.clip(np.rint(want / 256), 0, 255)
    # When it is computed
    op = described(shape, src, dtype, None, result)
    pd = primitive_desc(op, PrimitiveAttr((), tuple(scales), tuple(points)), TARGET)
    got = native.results(pd, args)[Arg.DST]
    # Then it is what 64-bit arithmetic gives
    assert pd.impl_name() == "native:depthwise_integer"
    np.testing.assert_array_equal(got, want, f"{dtype} {point}")


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
def test_no_vector_lives_on_the_stack_in_loops_of_whole_blocks_and_parts(tmp_path: Path) -> None:
    pd = primitive_desc(described(SHAPES[0], np.zeros((1, 9, 6, 9)), "u8", None, "u8"), PrimitiveAttr(), TARGET)
    spec = next(kernel for kernel in pd.program().kernels if kernel.generator == "integer_depthwise")
    found = loops_with_multiplications(compile_kernel(spec, pd.target.instructions), tmp_path)
    loops = ["\n".join(body) for body in found if sum("vpmaddwd" in line for line in body) == 8]
    held = [body for body in loops if not re.search("[xy]mm.*[(]%rsp|[(]%rsp.*[xy]mm", body)]
    # A part's bytes are shuffled
    assert {"vpshufb" in body for body in held} == {False, True}, loops
