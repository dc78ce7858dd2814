"""binary on native kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from poolrt.workers.desc import LIMITS, Arg, Binary, Eltwise, MemoryDesc, PostOp, PrimitiveAttr, post_op_src
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.references import numpy_type
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


@pytest.mark.parametrize("dtype", LIMITS)
def test_integers_divided_by_zero_are_zero(native: NativeRunner, isa: str, dtype: str) -> None:
    """Whole vectors and rests, operands that move and that stay, alone and before a post-op."""
    least, most = LIMITS[dtype]
    numbers = np.array([0, 1, 7, most // 2, most, least, least // 2, max(least, -1), max(least, -5)], numpy_type(dtype))
    left, right = np.repeat(numbers, 9), np.tile(numbers, 9)
    added = PrimitiveAttr((PostOp("eltwise", "linear", 1.0, 1.0),))
    for attr, x, y in (
        (PrimitiveAttr(), left, right),
        (added, left, right),
        (PrimitiveAttr(), np.tile(numbers, (9, 1)), numbers[:, None]),
        (PrimitiveAttr(), numbers[:, None], np.tile(numbers, (9, 1))),
        (PrimitiveAttr(), left, numbers[:1]),
        (PrimitiveAttr(), numbers[4:5], right),
        (PrimitiveAttr(), numbers[4:5], numbers[:1]),
    ):
        dst = MemoryDesc(np.broadcast_shapes(x.shape, y.shape), dtype)
        op = Binary(MemoryDesc(x.shape, dtype), MemoryDesc(y.shape, dtype), dst, "div")
        pd = primitive_desc(op, attr, target_of(isa))
        assert pd.impl_name() == "native:binary"
        got = native.results(pd, {Arg.SRC: x, Arg.SRC_1: y})[Arg.DST]
        pairs = zip(np.broadcast_to(x, dst.dims).flat, np.broadcast_to(y, dst.dims).flat, strict=True)
        wanted = [(float(a) / float(b) if b else 0.0) + (attr == added) for a, b in pairs]
        assert got.ravel().tolist() == [min(max(round(each), least), most) for each in wanted], (x.shape, y.shape)


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
