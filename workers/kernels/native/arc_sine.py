"""Arc sines and arc cosines of vectors of float32 and float64."""

from __future__ import annotations

import math
from typing import Final

from .sines import each
from .vec import VD, Builder, Value, apply, constant, fma

#: Coefficients of asin(r) in r * r for |r| up to 1/2, the highest first, from that of r**11 to that of r**3: Cephes'.
_SERIES: Final = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
#: What float32 loses of pi / 2; of pi, twice that.
_LOST: Final = -4.37113900018624283e-8


def emit_arc_sine(b: Builder, x: Value) -> Value:
    """Return the arc sine of x to 2 ulp, NaN beyond 1. In float64 it is the C library's."""
    if x.type == VD:
        return each(b, "asin", x)
    far, angle = _angle(b, x)
    rest = b.fadd(fma(b, constant(-2.0), angle, constant(math.pi / 2)), constant(_LOST))
    return apply(b, "copysign", b.select(far, rest, angle), x)


def emit_arc_cosine(b: Builder, x: Value) -> Value:
    """Return the arc cosine of x to 2 ulp, NaN beyond 1. In float64 it is the C library's."""
    if x.type == VD:
        return each(b, "acos", x)
    far, angle = _angle(b, x)
    twice = b.fadd(angle, angle)
    obtuse = b.fadd(b.fsub(constant(math.pi), twice), constant(2 * _LOST))
    steep = b.select(b.fcmp_ordered("<", x, constant(0.0)), obtuse, twice)
    around = b.fadd(b.fsub(constant(math.pi / 2), apply(b, "copysign", angle, x)), constant(_LOST))
    return b.select(far, steep, around)


def _angle(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return where |x| is over 1/2; and the arc sine of |x|, or there of sqrt((1 - |x|) / 2), half the rest to pi / 2."""
    size = apply(b, "fabs", x)
    far = b.fcmp_ordered(">", size, constant(0.5))
    half = fma(b, size, constant(-0.5), constant(0.5))
    square = b.select(far, half, b.fmul(size, size))
    r = b.select(far, apply(b, "sqrt", half), size)
    series = constant(_SERIES[0])
    for c in _SERIES[1:]:
        series = fma(b, series, square, constant(c))
    return far, fma(b, b.fmul(series, square), r, r)
