"""Powers of vectors: the exponent is computed in float64, for which float32 would lose a bit for each of its own."""

from __future__ import annotations

import math
from typing import Final

import llvmlite.ir as ir

from .vec import LANES, VF, VI, Builder, Value, call, constant, fma

_F64: Final = ir.DoubleType()
_VD: Final = ir.VectorType(_F64, LANES)
_VL: Final = ir.VectorType(ir.IntType(64), LANES)


def emit_power(b: Builder, x: Value, y: Value, factor: Value) -> Value:
    """Return factor * x**y to 2 ulp, with 2**(y log2 x); special values as C's pow has them.

    The factor comes before the power of two: only the result may overflow.
    """
    size = call(b, "llvm.fabs.v16f32", x)
    half = b.fmul(y, constant(0.5))
    is_whole = b.fcmp_ordered("==", call(b, "llvm.rint.v16f32", y), y)
    is_odd = b.and_(is_whole, b.fcmp_ordered("!=", call(b, "llvm.rint.v16f32", half), half))
    signed = b.select(is_odd, _signed(b, factor, x), factor)
    power = _exp2(b, b.fmul(b.fpext(y, _VD), _log2(b, size)), signed)
    below = b.and_(b.fcmp_ordered("<", x, constant(0.0)), b.fcmp_ordered(">", x, constant(-math.inf)))
    power = b.select(b.and_(below, b.not_(is_whole)), constant(math.nan), power)
    one = b.or_(b.fcmp_ordered("==", y, constant(0.0)), b.fcmp_ordered("==", x, constant(1.0)))
    return b.select(one, factor, power)


def _signed(b: Builder, value: Value, sign: Value) -> Value:
    """Return a value, negated where ``sign`` has a sign."""
    return b.fmul(value, call(b, "llvm.copysign.v16f32", constant(1.0), sign))


def _log2(b: Builder, size: Value) -> Value:
    """Return log2 of numbers that are not negative, in float64 to 1e-11: the mantissa's in [sqrt(0.5), sqrt(2))."""
    wide = b.fpext(size, _VD)  # which makes every float32 a normal number
    bits = b.bitcast(wide, _VL)
    exponent = b.sub(b.lshr(bits, _longs(52)), _longs(1022))
    mantissa = b.bitcast(b.or_(b.and_(bits, _longs((1 << 52) - 1)), _longs(1022 << 52)), _VD)
    low = b.fcmp_ordered("<", mantissa, _doubles(math.sqrt(0.5)))
    mantissa = b.select(low, b.fadd(mantissa, mantissa), mantissa)
    whole = b.trunc(b.select(low, b.sub(exponent, _longs(1)), exponent), VI)
    # log2(m) = 2 atanh(s) / ln2 with s = (m - 1) / (m + 1), |s| < 0.172
    s = b.fdiv(b.fsub(mantissa, _doubles(1.0)), b.fadd(mantissa, _doubles(1.0)))
    square = b.fmul(s, s)
    p = _doubles(1.0 / 13.0)
    for divisor in (11.0, 9.0, 7.0, 5.0, 3.0, 1.0):
        p = b.fadd(b.fmul(p, square), _doubles(1.0 / divisor))
    found = b.fadd(b.fmul(b.fmul(p, s), _doubles(2.0 / math.log(2.0))), b.sitofp(whole, _VD))
    found = b.select(b.fcmp_ordered("==", size, constant(0.0)), _doubles(-math.inf), found)
    return b.select(b.fcmp_ordered("<", size, constant(math.inf)), found, wide)


def _exp2(b: Builder, exponent: Value, factor: Value) -> Value:
    """Return factor * 2**exponent (float64) in float32: Cephes' exp2f, the whole part as four powers of two.

    Beyond 400 the result is 0 or infinity whatever the factor.
    """
    limited = b.select(b.fcmp_ordered(">", exponent, _doubles(400.0)), _doubles(400.0), exponent)
    limited = b.select(b.fcmp_ordered("<", limited, _doubles(-400.0)), _doubles(-400.0), limited)
    rounded = call(b, "llvm.rint.v16f64", limited, result=_VD)
    rest = b.fptrunc(b.fsub(limited, rounded), VF)
    p = constant(1.535336188319500e-4)
    for c in (1.339887440266574e-3, 9.618437357674640e-3, 5.550332471162809e-2, 2.402264791363012e-1):
        p = fma(b, p, rest, constant(c))
    p = fma(b, fma(b, p, rest, constant(6.931472028550421e-1)), rest, constant(1.0))
    p = b.select(b.fcmp_ordered(">", exponent, _doubles(400.0)), constant(math.inf), p)
    p = b.fmul(p, factor)
    whole = b.fptosi(rounded, VI)
    quarter = b.ashr(whole, _ints(2))
    power = b.bitcast(b.shl(b.add(quarter, _ints(127)), _ints(23)), VF)
    last = b.bitcast(b.shl(b.add(b.sub(whole, b.mul(quarter, _ints(3))), _ints(127)), _ints(23)), VF)
    for part in (power, power, power, last):
        p = b.fmul(p, part)
    return p


def _doubles(value: float) -> ir.Constant:
    return ir.Constant(_VD, [ir.Constant(_F64, value)] * LANES)


def _longs(value: int) -> ir.Constant:
    return ir.Constant(_VL, [value] * LANES)


def _ints(value: int) -> ir.Constant:
    return ir.Constant(VI, [value] * LANES)
