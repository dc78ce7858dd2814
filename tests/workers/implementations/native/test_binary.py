"""binary on native kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Binary, Eltwise, MemoryDesc, PostOp, PrimitiveAttr, post_op_src
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.workers.cases import Case, cases
from tests.workers.levels import target_of
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


@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [
        ("bf16", 2.0**-7),
        *(pytest.param(*each, marks=SLOW) for each in (("f16", 2.0**-10), ("f64", 1e-15), ("s32", 0.0))),
    ],
)
def test_powers_of_every_type_alone_and_as_a_post_op(native: NativeRunner, isa: str, dtype: str, rtol: float) -> None:
    rng, step = np.random.default_rng(), 1.0 if dtype == "s32" else 2.0
    base, exponent = (rng.integers(low, 9, (3, 53)) / step for low in (0, 0 if dtype == "s32" else -8))
    md = MemoryDesc((3, 53), dtype)
    native.check(Case("", Binary(md, md, md, "pow"), {Arg.SRC: base, Arg.SRC_1: exponent}, rtol=rtol), isa)
    attr = PrimitiveAttr((PostOp("binary", "pow", src1=md), PostOp("eltwise", "linear", 2.0, 0.0)))
    args = {Arg.SRC: base, post_op_src(0): exponent}
    native.check(Case("", Eltwise(md, md, "abs"), args, attr, rtol=rtol), isa)


def test_powers_of_float64_are_within_two_units_of_exact_ones(native: NativeRunner, isa: str) -> None:
    """Given bases of every size, near 1 and below the normal numbers, and results down to these."""
    rng, count = np.random.default_rng(), 3000
    sizes = [
        np.exp2(rng.uniform(-1074, 1024, count)),
        1.0 + rng.standard_normal(count) * np.exp2(rng.uniform(-52, -1, count)),
    ]
    base = np.concatenate([*sizes, np.abs(rng.standard_normal(count))])
    base[::7] *= -1
    with np.errstate(all="ignore"):
        exponent = rng.uniform(-1080, 1030, base.size) / np.log2(np.abs(base))
        exponent[::7] = np.rint(exponent[::7])
        want = np.power(base.astype(np.longdouble), exponent.astype(np.longdouble))
        md = MemoryDesc(base.shape, "f64")
        pd = primitive_desc(Binary(md, md, md, "pow"), PrimitiveAttr(), target_of(isa))
        assert pd.impl_name() == "native:binary"
        got = native.results(pd, {Arg.SRC: base, Arg.SRC_1: exponent})[Arg.DST]
        rounded = want.astype(np.float64)
        error = np.abs(got.astype(np.longdouble) - want) / np.spacing(np.abs(rounded)).astype(np.longdouble)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    assert (same | (error < 2)).all(), (base[~same & ~(error < 2)], exponent[~same & ~(error < 2)])
