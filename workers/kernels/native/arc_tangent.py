"""Arc tangents of vectors of float32 and float64."""

from __future__ import annotations

import math
from typing import Final

from .sines import each
from .vec import VD, Builder, Value, apply, constant, fma

#: Coefficients of atan(r) in r * r for |r| up to tan(pi / 8), the highest first, from that of r**9 to that of r**3: Cephes'.
_SERIES: Final = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
#: Arguments from which on the angle of 1, and that of infinity, are taken off: tan(pi / 8) and tan(3 pi / 8).
_MIDDLE: Final = math.tan(math.pi / 8)
_STEEP: Final = math.tan(3 * math.pi / 8)
#: What float32 loses of pi / 2; of pi / 4, half of it.
_LOST: Final = -4.37113900018624283e-8


def emit_arc_tangent(b: Builder, x: Value) -> Value:
    """Return the arc tangent of x to 3 ulp, pi / 2 of infinity. In float64 it is the C library's."""
    if x.type == VD:
        return each(b, "atan", x)
    size = apply(b, "fabs", x)
    steep = b.fcmp_ordered(">", size, constant(_STEEP))
    middle = b.fcmp_ordered(">", size, constant(_MIDDLE))
    # atan(s) = pi / 2 + atan(-1 / s) = pi / 4 + atan((s - 1) / (s + 1)): one division for all.
    above = b.select(steep, constant(-1.0), b.select(middle, b.fsub(size, constant(1.0)), size))
    below = b.select(steep, size, b.select(middle, b.fadd(size, constant(1.0)), constant(1.0)))
    r = b.fdiv(above, below)
    square = b.fmul(r, r)
    series = constant(_SERIES[0])
    for c in _SERIES[1:]:
        series = fma(b, series, square, constant(c))
    angle = fma(b, b.fmul(series, square), r, r)
    start = b.select(steep, constant(math.pi / 2), b.select(middle, constant(math.pi / 4), constant(0.0)))
    lost = b.select(steep, constant(_LOST), b.select(middle, constant(_LOST / 2), constant(0.0)))
    return apply(b, "copysign", b.fadd(start, b.fadd(angle, lost)), x)
