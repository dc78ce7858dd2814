"""Exponentials and logarithms of vectors of float32 and float64: polynomials, the same on every ISA level."""

from __future__ import annotations

import math
from typing import Final

import llvmlite.ir as ir

from .vec import (
    FUSES,
    I16,
    I32,
    I64,
    LANES,
    VD,
    VF,
    VI,
    Builder,
    Value,
    apply,
    call,
    constant,
    fma,
    is_negative,
    isa_of,
    maximum,
    minimum,
    product_error,
    unary,
)

_VL: Final = ir.VectorType(I64, LANES)
#: Coefficients of (exp(r) - 1 - r) / r**2, the highest first. Those for float32 make the largest relative error of exp(r)
#: least, 3.6e-9 (a sixteenth of a unit in the last place); those for float64 are the series up to r**13.
_EXP: Final = (1.3814540083e-3, 8.3687451045e-3, 4.1668390784e-2, 1.6666520399e-1, 4.9999993432e-1)
#: The same with an error of 1.05e-7, somewhat less than a unit.
_SHORT_EXP: Final = (8.3125012968e-3, 4.1890331715e-2, 1.6667115389e-1, 4.9999230308e-1)
_EXP_DOUBLE: Final = tuple(1.0 / math.factorial(n) for n in range(13, 1, -1))
#: Coefficients of (ln(1 + f) - f + f**2 / 2 - s f**2 / 2) / s, s = f / (2 + f), in s**2, the highest first (fdlibm's log).
_LOG_DOUBLE: Final = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
    2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01,
)  # fmt: skip
_LOG2E: Final = 1.0 / math.log(2.0)
#: ln2 as a number with few bits and the rest.
_LN2: Final = (0.693359375, -2.12194440e-4)
_LN2_DOUBLE: Final = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
#: A number whose sum with one below 2**22 is rounded to a whole number.
_LARGE: Final = 1.5 * 2**23
#: A power of two that makes those of denormal results normal numbers, and of those above the largest power.
_SHIFT: Final = 64
#: The operand of AVX-512 instructions that rounds as the processor is set.
_ROUND_AS_SET: Final = 4


def emit_exp(b: Builder, x: Value, limited: bool = True) -> Value:
    """Return exp(x) to 1 ulp (Cephes' expf): 2**n times a polynomial on [-ln2/2, ln2/2]; NaN stays NaN.

    The argument is clamped once the result has become 0 or infinity, unless it is not ``limited``, for one above -170 and
    below 89.
    """
    if x.type == VD:
        return _double_exp(b, x)
    if isa_of(b) == "x86-64-v3" and limited:
        return _exp_by_sign(b, x)
    if limited:
        x = maximum(b, constant(-104.0), minimum(b, constant(89.0), x))
    r, n = _split_exp(b, x)
    return _scaled(b, _exp_series(b, r), n)


def emit_exp_below(b: Builder, x: Value, limited: bool = True, denormal: bool = False, short: bool = False) -> Value:
    """Return exp(x) for x up to 40: with FMA in two thirds of the time of `emit_exp`. NaN stays NaN.

    Its relative error is 1 ulp and 2e-9 for each power of two, 4 ulp at the end of the range; on AVX2 2 ulp more if its chain of
    products is ``short``. Results below the normal range are 0, or ``denormal`` numbers. An argument that is not ``limited`` is
    above -170. On levels without FMA it is `emit_exp`.
    """
    level = isa_of(b)
    if x.type == VD or level not in FUSES:
        return emit_exp(b, x, limited)
    # Not "at least": what is no number remains. The power is any number for an argument below the range.
    lowest = -104.0 if denormal else -87.3
    if level == "x86-64-v4":
        if limited and denormal:
            x = maximum(b, constant(lowest), x)
        r, n = _split_exp(b, x, (math.log(2.0),))
        above = b.fcmp_unordered(">=", x, constant(lowest)) if limited and not denormal else None
        return _scaled(b, _exp_series(b, r), n, above)
    p, power = _shifted_exp(b, x, 127 + denormal * _SHIFT, (math.log(2.0),), short)
    value = b.fmul(p, b.bitcast(power, VF))
    if denormal:
        value = b.fmul(value, constant(2.0**-_SHIFT))
    return b.select(b.fcmp_ordered("<", x, constant(lowest)), constant(0.0), value)


def emit_bell(b: Builder, size: Value) -> Value:
    """Return exp(-size**2 / 2) of float32 from 0 to 15 to 2 ulp, as the square is not rounded; NaN stays NaN.

    On AVX2 it is 0 beyond 13.2.
    """
    level, half = isa_of(b), b.fmul(size, constant(-0.5))
    shifted = level == "x86-64-v3"
    large = constant(_LARGE + 127 * shifted)
    rounded = fma(b, b.fmul(size, constant(-0.5 * _LOG2E)), size, large)
    n = b.fsub(rounded, large)
    # The first product is exact, and the sum with that of the sizes is small.
    first = b.fmul(n, constant(-_LN2[0]))
    r = fma(b, n, constant(-_LN2[1]), fma(b, half, size, first))
    if shifted:
        value = b.fmul(_short_series(b, r), b.bitcast(b.shl(b.bitcast(rounded, VI), _ints(23)), VF))
        return b.select(b.fcmp_ordered(">", size, constant(13.2)), constant(0.0), value)
    if level != "x86-64-v4":  # without FMA
        r = b.fadd(r, product_error(b, half, size, b.fmul(half, size)))
    return _scaled(b, _exp_series(b, r), n)


def _exp_by_sign(b: Builder, x: Value) -> Value:
    """Return exp(x) as p 2**(n + s) 2**-s: s makes the first power a normal number, and its sign is the opposite of x's."""
    x = maximum(b, constant(-104.0), minimum(b, constant(89.0), x))
    p, power = _shifted_exp(b, x, 2 * 127, _LN2)
    back = b.select(is_negative(b, x), constant(2.0**-_SHIFT), constant(2.0**_SHIFT))
    return b.fmul(b.fmul(p, b.bitcast(b.sub(power, b.bitcast(back, VI)), VF)), back)


def _shifted_exp(b: Builder, x: Value, bias: int, ln2: tuple[float, ...], short: bool = False) -> tuple[Value, Value]:
    """Return p in [1/sqrt2, sqrt2] and (n + bias) 2**23, modulo 2**32, of exp(x) = p 2**n.

    The sum with a large number rounds n and has n + bias in its lowest bits, without a conversion.
    """
    large = constant(_LARGE + bias)
    rounded = fma(b, x, constant(_LOG2E), large)
    n = b.fsub(rounded, large)
    r = x
    for part in ln2:
        r = fma(b, n, constant(-part), r)
    p = _short_series(b, r) if short else _exp_series(b, r)
    return p, b.shl(b.bitcast(rounded, VI), _ints(23))


def emit_expm1(b: Builder, x: Value) -> Value:
    """Return exp(x) - 1 to 3 ulp for x up to 88, or 709 in float64, near 0 too; NaN stays NaN."""
    if x.type == VD:
        r, exponent = _split_double(b, x)
        low, high = double_powers(b, exponent)
        p = double_series(b, r)
        scale = b.fmul(low, high)
        return fma(b, scale, p, b.fsub(scale, constant(1.0, VD)))
    r, n = _split_exp(b, maximum(b, constant(-104.0), minimum(b, constant(89.0), x)))
    p = constant(_EXP[0])
    for c in _EXP[1:]:
        p = fma(b, p, r, constant(c))
    p = fma(b, p, b.fmul(r, r), r)
    low, high = _powers_of_two(b, b.fptosi(n, VI))
    scale = b.fmul(low, high)
    return fma(b, scale, p, b.fsub(scale, constant(1.0)))


def _split_exp(b: Builder, x: Value, ln2: tuple[float, ...] = _LN2) -> tuple[Value, Value]:
    """Return r and n of x = n ln2 + r. The sum with a large number rounds n: `rint` takes AVX-512 twice as long."""
    n = b.fsub(fma(b, x, constant(_LOG2E), constant(_LARGE)), constant(_LARGE))
    r = x
    for part in ln2:
        r = fma(b, n, constant(-part), r)
    return r, n


def _exp_series(b: Builder, r: Value) -> Value:
    """Return exp(r) for |r| below ln2/2."""
    p = constant(_EXP[0])
    for c in _EXP[1:]:
        p = fma(b, p, r, constant(c))
    if isa_of(b) in ("x86-64-v3", "x86-64-v4"):
        return fma(b, fma(b, p, r, constant(1.0)), r, constant(1.0))
    # Without FMA, that would lose a tenth of a unit.
    return b.fadd(fma(b, p, b.fmul(r, r), r), constant(1.0))


def _short_series(b: Builder, r: Value) -> Value:
    """Return exp(r) for |r| below ln2/2, by pairs of terms.

    Processors with vectors of 256 bits have less in flight than a chain of all of them takes.
    """
    c3, c2, c1, c0 = (constant(c) for c in _SHORT_EXP)
    square = b.fmul(r, r)
    p = fma(b, fma(b, c3, r, c2), square, fma(b, c1, r, c0))
    return fma(b, p, square, b.fadd(r, constant(1.0)))


def _scaled(b: Builder, p: Value, n: Value, lanes: Value | None = None) -> Value:
    """Return p 2**n; on AVX-512 only of some ``lanes`` if given, 0 in the others."""
    if isa_of(b) == "x86-64-v4":
        mask = I16(-1) if lanes is None else b.bitcast(lanes, I16)
        return call(b, "llvm.x86.avx512.mask.scalef.ps.512", p, n, constant(0.0), mask, I32(_ROUND_AS_SET))
    for factor in _powers_of_two(b, b.fptosi(n, VI)):
        p = b.fmul(p, factor)
    return p


def _powers_of_two(b: Builder, exponent: Value) -> tuple[Value, Value]:
    """Return 2**n as two factors: n reaches 128 (one above the largest exponent) and -150 (below the normal range)."""
    half = b.ashr(exponent, _ints(1))
    low, high = (b.bitcast(b.shl(b.add(part, _ints(127)), _ints(23)), VF) for part in (half, b.sub(exponent, half)))
    return low, high


def _double_exp(b: Builder, x: Value) -> Value:
    """Return exp(x) of float64 to 1 ulp; NaN stays NaN."""
    r, exponent = _split_double(b, x)
    p = b.fadd(double_series(b, r), constant(1.0, VD))
    for factor in double_powers(b, exponent):
        p = b.fmul(p, factor)
    return p


def _split_double(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return r and n (int32) of x = n ln2 + r in float64; x is clamped once exp(x) has become 0 or infinity."""
    x = maximum(b, constant(-746.0, VD), minimum(b, constant(710.0, VD), x))
    n = apply(b, "rint", b.fmul(x, constant(_LOG2E, VD)))
    r = fma(b, n, constant(-_LN2_DOUBLE[0], VD), x)
    r = fma(b, n, constant(-_LN2_DOUBLE[1], VD), r)
    number = b.fcmp_ordered("ord", n, n)  # no number has no integer
    return r, b.fptosi(b.select(number, n, constant(0.0, VD)), VI)


def double_series(b: Builder, r: Value) -> Value:
    """Return exp(r) - 1 for |r| below ln2/2."""
    p = constant(_EXP_DOUBLE[0], VD)
    for c in _EXP_DOUBLE[1:]:
        p = fma(b, p, r, constant(c, VD))
    return fma(b, p, b.fmul(r, r), r)


def double_powers(b: Builder, exponent: Value) -> tuple[Value, Value]:
    """Return 2**n as two float64: n reaches 1024 and -1076."""
    half = b.ashr(exponent, _ints(1))
    bias, place = _longs(1023), _longs(52)
    low, high = (b.bitcast(b.shl(b.add(b.sext(part, _VL), bias), place), VD) for part in (half, b.sub(exponent, half)))
    return low, high


def emit_log(b: Builder, x: Value) -> Value:
    """Return ln(x) to 2 ulp (Cephes' logf, fdlibm's log): -inf at 0, NaN below it, infinity and NaN unchanged."""
    if x.type == VD:
        return _special_logs(b, x, _double_log(b, x))
    tiny = b.fcmp_ordered("<", x, constant(1.17549435e-38))
    scaled = b.select(tiny, b.fmul(x, constant(8388608.0)), x)
    bits = b.bitcast(scaled, VI)
    exponent = b.sub(b.lshr(bits, _ints(23)), _ints(126))
    exponent = b.select(tiny, b.sub(exponent, _ints(23)), exponent)
    mantissa = b.bitcast(b.or_(b.and_(bits, _ints(0x007FFFFF)), _ints(0x3F000000)), VF)
    low = b.fcmp_ordered("<", mantissa, constant(math.sqrt(0.5)))
    n = b.sitofp(b.select(low, b.sub(exponent, _ints(1)), exponent), VF)
    m = b.fsub(b.select(low, b.fadd(mantissa, mantissa), mantissa), constant(1.0))
    p = constant(7.0376836292e-2)
    for c in (
        -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1,
        -2.4999993993e-1, 3.3333331174e-1,
    ):  # fmt: skip
        p = fma(b, p, m, constant(c))
    square = b.fmul(m, m)
    y = b.fmul(b.fmul(p, m), square)
    y = fma(b, n, constant(_LN2[1]), y)
    y = fma(b, square, constant(-0.5), y)
    return _special_logs(b, x, fma(b, n, constant(_LN2[0]), b.fadd(m, y)))


def _double_log(b: Builder, x: Value) -> Value:
    """Return ln(x) of positive float64, to 1 ulp."""
    tiny = b.fcmp_ordered("<", x, constant(2.0**-1022, VD))
    bits = b.bitcast(b.select(tiny, b.fmul(x, constant(2.0**54, VD)), x), _VL)
    exponent = b.trunc(b.lshr(bits, _longs(52)), VI)
    exponent = b.sub(exponent, b.select(tiny, _ints(1022 + 54), _ints(1022)))
    mantissa = b.bitcast(b.or_(b.and_(bits, _longs((1 << 52) - 1)), _longs(1022 << 52)), VD)
    low = b.fcmp_ordered("<", mantissa, constant(math.sqrt(0.5), VD))
    n = b.sitofp(b.select(low, b.sub(exponent, _ints(1)), exponent), VD)
    f = b.fsub(b.select(low, b.fadd(mantissa, mantissa), mantissa), constant(1.0, VD))
    s = b.fdiv(f, b.fadd(f, constant(2.0, VD)))
    z = b.fmul(s, s)
    p = constant(_LOG_DOUBLE[0], VD)
    for c in _LOG_DOUBLE[1:]:
        p = fma(b, p, z, constant(c, VD))
    half = b.fmul(b.fmul(f, f), constant(0.5, VD))
    rest = fma(b, n, constant(_LN2_DOUBLE[1], VD), b.fmul(s, fma(b, z, p, half)))
    return fma(b, n, constant(_LN2_DOUBLE[0], VD), b.fsub(f, b.fsub(half, rest)))


def _special_logs(b: Builder, x: Value, y: Value) -> Value:
    y = b.select(b.fcmp_ordered("<", x, constant(math.inf, x.type)), y, x)
    y = b.select(b.fcmp_ordered("==", x, constant(0.0, x.type)), constant(-math.inf, x.type), y)
    return b.select(b.fcmp_ordered("<", x, constant(0.0, x.type)), constant(math.nan, x.type), y)


def _ints(value: int) -> ir.Constant:
    return ir.Constant(VI, [value] * LANES)


def _longs(value: int) -> ir.Constant:
    return ir.Constant(_VL, [value] * LANES)


vexp = unary("Return exp(x) to 1 ulp; 0 and infinity beyond the range; NaN stays NaN.", emit_exp)
vexp_below = unary("Return exp(x) for x up to 40; 0 below the normal range; NaN stays NaN.", emit_exp_below)
vlog = unary("Return ln(x) to 2 ulp; -inf at 0, NaN below.", emit_log)
