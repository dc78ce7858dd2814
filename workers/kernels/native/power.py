"""Powers of vectors: the exponent is computed in float64, for which float32 would lose a bit for each of its own."""

from __future__ import annotations

import math
from typing import Final

import llvmlite.ir as ir

from .vec import (
    I16,
    I32,
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
    isa_of,
    maximum,
    minimum,
)

#: Coefficients of log2(m) / s, s = (m - 1) / (m + 1), in s**2, the highest first: they make the largest relative error for m
#: from sqrt(0.5) to sqrt(2) least, 4.2e-12.
_LOG2: Final = (0.3407301066567196, 0.4116727187679381, 0.5770835849751799, 0.9617966733416875, 2.8853900817900864)
#: Cephes' exp2f, the highest first.
_EXP2: Final = (
    1.535336188319500e-4, 1.339887440266574e-3, 9.618437357674640e-3, 5.550332471162809e-2, 2.402264791363012e-1,
    6.931472028550421e-1, 1.0,
)  # fmt: skip
_LARGEST: Final = 3.4028234663852886e38
#: The bits of float32: sqrt(0.5), infinity, the sign.
_ROOT_BITS: Final = 0x3F3504F3
_INFINITY_BITS: Final = 0x7F800000
_SIGN_BIT: Final = 1 << 31
#: The operand of AVX-512 instructions that rounds as the processor is set.
_ROUND_AS_SET: Final = 4


def emit_power(b: Builder, x: Value, y: Value, factor: Value) -> Value:
    """Return factor * x**y to 2 ulp, with 2**(y log2 x); special values as C's pow has them.

    The factor comes before the power of two: only the result may overflow.
    """
    size = apply(b, "fabs", x)
    half = b.fmul(y, constant(0.5))
    is_whole = b.fcmp_ordered("==", apply(b, "rint", y), y)
    is_odd = b.and_(is_whole, b.fcmp_ordered("!=", apply(b, "rint", half), half))
    sign = b.and_(b.bitcast(x, VI), _ints(_SIGN_BIT))
    signed = b.select(is_odd, b.bitcast(b.xor(b.bitcast(factor, VI), sign), VF), factor)
    # A finite exponent, so that its product with the logarithm of 1 is 0.
    limited = maximum(b, constant(-_LARGEST), minimum(b, constant(_LARGEST), y))
    power = _exp2(b, b.fmul(b.fpext(limited, VD), _log2(b, size)), signed)
    root_of_negative = b.and_(b.fcmp_ordered("<", x, constant(0.0)), b.not_(is_whole))
    power = b.select(root_of_negative, constant(math.nan), power)
    # Powers of 0, infinity and NaN are 0, infinity or NaN.
    logarithm = b.select(b.fcmp_ordered("==", size, constant(0.0)), constant(-math.inf), size)
    special = b.fmul(maximum(b, constant(0.0), b.fmul(logarithm, y)), signed)
    before = b.sub(b.bitcast(size, VI), _ints(1))
    power = b.select(b.icmp_unsigned("<", before, _ints(_INFINITY_BITS - 1)), power, special)
    one = b.or_(b.fcmp_ordered("==", y, constant(0.0)), b.fcmp_ordered("==", x, constant(1.0)))
    return b.select(one, factor, power)


def _log2(b: Builder, size: Value) -> Value:
    """Return log2 of positive finite numbers in float64: the exponent and 2 atanh(s) / ln2 of the mantissa m."""
    tiny = b.fcmp_ordered("<", size, constant(2.0**-126))
    bits = b.bitcast(b.select(tiny, b.fmul(size, constant(2.0**23)), size), VI)
    exponent = b.ashr(b.sub(bits, _ints(_ROOT_BITS)), _ints(23))
    mantissa = b.bitcast(b.sub(bits, b.shl(exponent, _ints(23))), VF)
    exponent = b.select(tiny, b.sub(exponent, _ints(23)), exponent)
    f = b.fpext(b.fsub(mantissa, constant(1.0)), VD)
    s = b.fdiv(f, b.fadd(f, constant(2.0, VD)))
    square = b.fmul(s, s)
    p = constant(_LOG2[0], VD)
    for c in _LOG2[1:]:
        p = fma(b, p, square, constant(c, VD))
    return fma(b, p, s, b.sitofp(exponent, VD))


def _exp2(b: Builder, exponent: Value, factor: Value) -> Value:
    """Return factor * 2**exponent (float64) in float32; NaN stays NaN.

    Without an instruction for it, the whole part becomes four powers of two. Beyond 400 the result is 0 or infinity whatever
    the factor.
    """
    scales = isa_of(b) == "x86-64-v4"
    if not scales:
        exponent = maximum(b, constant(-400.0, VD), minimum(b, constant(400.0, VD), exponent))
    rounded = apply(b, "rint", exponent)
    rest = b.fptrunc(b.fsub(exponent, rounded), VF)
    p = constant(_EXP2[0])
    for c in _EXP2[1:]:
        p = fma(b, p, rest, constant(c))
    p = b.fmul(p, factor)
    if scales:
        n = b.fptrunc(rounded, VF)
        return call(b, "llvm.x86.avx512.mask.scalef.ps.512", p, n, constant(0.0), I16(-1), I32(_ROUND_AS_SET))
    whole = b.fptosi(rounded, VI)
    quarter = b.ashr(whole, _ints(2))
    power = b.bitcast(b.shl(b.add(quarter, _ints(127)), _ints(23)), VF)
    last = b.bitcast(b.shl(b.add(b.sub(whole, b.mul(quarter, _ints(3))), _ints(127)), _ints(23)), VF)
    for part in (power, power, power, last):
        p = b.fmul(p, part)
    return p


def _ints(value: int) -> ir.Constant:
    return ir.Constant(VI, [value] * LANES)
