"""Powers of vectors. The exponent of float32 is computed in float64: float32 would lose a bit for each of its own."""

from __future__ import annotations

import math
from typing import Final

import llvmlite.ir as ir

from .double_power import emit_double_power
from .sines import each
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
#: The bits of sqrt(0.5).
_ROOT_BITS: Final = 0x3F3504F3
#: Of float32 and float64: integers of their bits, an exponent at which every power but that of 1 is 0 or infinity and whose
#: product with a logarithm is finite, the bits of infinity, and the sign.
_FORMATS: Final = (
    (VI, 3.4028234663852886e38, 0x7F800000, 1 << 31),
    (ir.VectorType(I64, LANES), 1e300, 0x7FF << 52, 1 << 63),
)
#: The operand of AVX-512 instructions that rounds as the processor is set.
_ROUND_AS_SET: Final = 4


def emit_power(b: Builder, x: Value, y: Value, factor: Value) -> Value:
    """Return factor * x**y to 2 ulp; special values as C's pow has them.

    In float32 it is 2**(y log2 x), and the factor comes before the power of two: only the result may overflow. In float64 on a
    level without FMA the power is the C library's.
    """
    kind = x.type
    if kind == VD and isa_of(b) not in FUSES:
        return b.fmul(factor, each(b, "pow", x, y))
    zero, one = constant(0.0, kind), constant(1.0, kind)
    whole, largest, infinity_bits, sign_bit = _FORMATS[kind == VD]
    size = apply(b, "fabs", x)
    half = b.fmul(y, constant(0.5, kind))
    is_whole = b.fcmp_ordered("==", apply(b, "rint", y), y)
    is_odd = b.and_(is_whole, b.fcmp_ordered("!=", apply(b, "rint", half), half))
    sign = b.and_(b.bitcast(x, whole), _same(whole, sign_bit))
    signed = b.select(is_odd, b.bitcast(b.xor(b.bitcast(factor, whole), sign), kind), factor)
    # A finite exponent, so that its product with the logarithm of 1 is 0.
    limited = maximum(b, constant(-largest, kind), minimum(b, constant(largest, kind), y))
    if kind == VD:
        power = b.fmul(emit_double_power(b, size, limited), signed)
    else:
        power = _exp2(b, b.fmul(b.fpext(limited, VD), _log2(b, size)), signed)
    root_of_negative = b.and_(b.fcmp_ordered("<", x, zero), b.not_(is_whole))
    power = b.select(root_of_negative, constant(math.nan, kind), power)
    # Powers of 0, infinity and NaN are 0, infinity or NaN.
    logarithm = b.select(b.fcmp_ordered("==", size, zero), constant(-math.inf, kind), size)
    special = b.fmul(maximum(b, zero, b.fmul(logarithm, y)), signed)
    before = b.sub(b.bitcast(size, whole), _same(whole, 1))
    power = b.select(b.icmp_unsigned("<", before, _same(whole, infinity_bits - 1)), power, special)
    is_one = b.or_(b.fcmp_ordered("==", y, zero), b.fcmp_ordered("==", x, one))
    return b.select(is_one, factor, power)


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

    Without an instruction for it, the whole part becomes four powers of two. An exponent outside of -400 to 400 is replaced by
    the nearer of these bounds: the result is 0 or infinity there whatever the factor.
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
    return _same(VI, value)


def _same(kind: ir.Type, value: int) -> ir.Constant:
    return ir.Constant(kind, [value] * LANES)
