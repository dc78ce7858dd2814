"""binary on native kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Binary, Eltwise, MemoryDesc, PostOp, PrimitiveAttr, post_op_src
from tests.workers.cases import Case, cases
from tests.workers.native_runner import NativeRunner

SLOW = pytest.mark.slow


@pytest.mark.parametrize("case", [*cases("binary"), *cases("binary", "blocked")], ids=str)
def test_native_result_is_right(case: Case, isa: str, native: NativeRunner) -> None:
    native.check(case, isa)


@pytest.mark.parametrize(
    ("algorithm", "dtype"),
    [
        pytest.param(algorithm, dtype, marks=[] if (algorithm, dtype) in (("max", "f32"), ("min", "bf16")) else SLOW)
        for algorithm in ("max", "min")
        for dtype in ("f32", "f64", "f16", "bf16")
    ],
)
def test_an_extreme_of_nan_is_nan(native: NativeRunner, isa: str, algorithm: str, dtype: str) -> None:
    """Either operand is NaN, of any sign, in whole vectors and in a rest."""
    numbers = np.array([math.nan, -math.nan, 0.0, -1.5, 3.0, math.inf, -math.inf])
    pairs = [each.reshape(1, 49) for each in (np.repeat(numbers, 7), np.tile(numbers, 7))]
    md = MemoryDesc((1, 49), dtype)
    native.check(Case("", Binary(md, md, md, algorithm), {Arg.SRC: pairs[0], Arg.SRC_1: pairs[1]}), isa)
    attr = PrimitiveAttr((PostOp("binary", algorithm, src1=md),))
    args = {Arg.SRC: pairs[0], post_op_src(0): pairs[1]}
    native.check(Case("", Eltwise(md, md, "abs"), args, attr), isa)
