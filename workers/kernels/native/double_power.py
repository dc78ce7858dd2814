"""Powers of vectors of positive float64, by logarithms with some 65 bits."""

from __future__ import annotations

import math
from typing import Final

import llvmlite.ir as ir

from .exponentials import double_powers, double_series
from .vec import I64, LANES, VD, VI, Builder, Value, apply, constant, fma, maximum, minimum

_VL: Final = ir.VectorType(I64, LANES)
#: Coefficients of (2 atanh(s) - 2 s - 2 s**3 / 3) / s**5 in s**2, the highest first: they make the largest relative error for s
#: up to 0.1716 least, 5e-18.
_ATANH: Final = (
    0.11723496724017675, 0.11706198275996944, 0.13334806511051125, 0.1538459491864103, 0.18181818335949282,
    0.22222222221652477, 0.28571428571429375, 0.4,
)  # fmt: skip
#: 2/3 and ln2 as two float64; ln2 also as one whose products with exponents are exact, and the rest.
_TWO_THIRDS: Final = (0.6666666666666666, 3.7025504190379976e-17)
_LN2: Final = (0.6931471805599453, 2.3190468138462996e-17)
_SHORT_LN2: Final = (0.6931471805598903, 5.497923018708371e-14)
#: The bits of sqrt(0.5) and of 1, and those of 2**52, to whose low ones a whole number is added.
_ROOT_BITS: Final = 0x3FE6A09E667F3BCD
_ONE_BITS: Final = 1023 << 52
_WHOLE_BITS: Final = 1075 << 52


def emit_double_power(b: Builder, size: Value, y: Value) -> Value:
    """Return size**y to 1 ulp on a level with FMA, of positive finite float64 and of exponents that are finite or NaN."""
    high, low = _log(b, size)
    product = b.fmul(y, high)
    rest = fma(b, y, low, fma(b, y, high, b.fneg(product)))
    # The power is 0 or infinity long before; then the rest may be as large as anything.
    product = maximum(b, constant(-800.0, VD), minimum(b, constant(800.0, VD), product))
    rest = maximum(b, constant(-1.0, VD), minimum(b, constant(1.0, VD), rest))
    n = apply(b, "rint", b.fmul(product, constant(1.0 / math.log(2.0), VD)))
    r = fma(b, n, constant(-_LN2[0], VD), product)
    r = b.fadd(fma(b, n, constant(-_LN2[1], VD), r), rest)
    power = b.fadd(double_series(b, r), constant(1.0, VD))
    number = b.fcmp_ordered("ord", n, n)  # no number has no integer
    for factor in double_powers(b, b.fptosi(b.select(number, n, constant(0.0, VD)), VI)):
        power = b.fmul(power, factor)
    return power


def _log(b: Builder, size: Value) -> tuple[Value, Value]:
    """Return ln(size) as a float64 and the rest: n ln2 + 2 atanh(s), s = (m - 1) / (m + 1) for the mantissa m.

    s, its cube and their sum with n ln2 have two parts each; the terms from s**5 on, below 2**-12 of the result, have one.
    """
    tiny = b.fcmp_ordered("<", size, constant(2.0**-1022, VD))
    bits = b.bitcast(b.select(tiny, b.fmul(size, constant(2.0**54, VD)), size), _VL)
    exponent = b.lshr(b.add(bits, _longs(_ONE_BITS - _ROOT_BITS)), _longs(52))
    m = b.bitcast(b.add(b.sub(bits, b.shl(exponent, _longs(52))), _longs(_ONE_BITS)), VD)
    bias = b.select(tiny, constant(2.0**52 + 1023 + 54, VD), constant(2.0**52 + 1023, VD))
    n = b.fsub(b.bitcast(b.or_(exponent, _longs(_WHOLE_BITS)), VD), bias)

    above = b.fsub(m, constant(1.0, VD))
    below = b.fadd(m, constant(1.0, VD))
    lost = b.fsub(m, b.fsub(below, constant(1.0, VD)))
    inverse = b.fdiv(constant(1.0, VD), below)
    s = b.fmul(above, inverse)
    remainder = fma(b, b.fneg(s), lost, fma(b, b.fneg(s), below, above))
    s_low = b.fmul(remainder, inverse)

    square, square_low = _product(b, (s, s_low), (s, s_low))
    cube, cube_low = _product(b, (s, s_low), (square, square_low))
    third, third_low = _product(b, (cube, cube_low), (constant(_TWO_THIRDS[0], VD), constant(_TWO_THIRDS[1], VD)))
    p = constant(_ATANH[0], VD)
    for c in _ATANH[1:]:
        p = fma(b, p, square, constant(c, VD))
    rest = fma(b, b.fmul(p, square), cube, third_low)
    rest = fma(b, n, constant(_SHORT_LN2[1], VD), b.fadd(rest, b.fadd(s_low, s_low)))

    # Each sum's first term is the larger one, or 0.
    high, twice = b.fmul(n, constant(_SHORT_LN2[0], VD)), b.fadd(s, s)
    for term in (twice, third):
        total = b.fadd(high, term)
        rest = b.fadd(rest, b.fsub(term, b.fsub(total, high)))
        high = total
    total = b.fadd(high, rest)
    return total, b.fsub(rest, b.fsub(total, high))


def _product(b: Builder, x: tuple[Value, Value], y: tuple[Value, Value]) -> tuple[Value, Value]:
    """Return the product of two numbers of two parts each, as two parts."""
    high = b.fmul(x[0], y[0])
    low = fma(b, x[0], y[0], b.fneg(high))
    return high, fma(b, x[1], y[0], fma(b, x[0], y[1], low))


def _longs(value: int) -> ir.Constant:
    return ir.Constant(_VL, [value] * LANES)
