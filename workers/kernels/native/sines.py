"""Sines, cosines and tangents of vectors of float32 and float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import llvmlite.ir as ir

from .vec import F64, I32, LANES, VD, VF, VI, VM, Builder, Value, apply, call, constant, fma

#: Coefficients of sin(r) and cos(r) in r * r for |r| up to pi / 4, the highest first, from that of r**7 and r**8 on: Cephes'.
_SINE: Final = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE: Final = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
#: pi / 2 as a number of 33 bits, of which multiples up to 2**20 are exact, and the rest (fdlibm's).
_QUARTER: Final = (1.57079632673412561417, 6.07710050650619224932e-11)
_TWO_OVER_PI: Final = 0.63661977236758134308
#: Beyond, the C library reduces the argument.
_FAR: Final = 1.5e6


def emit_sine(b: Builder, x: Value, turns: int) -> Value:
    """Return the sine of x plus ``turns`` quarter turns, 0 or 1, to 2 ulp; NaN of infinity. In float64 it is the C library's.

    The argument is reduced in float64, so that zeros of the sine are precise too.
    """
    return _emit(b, x, ("sin", "cos")[turns], lambda: _near(b, x, turns))


def emit_tangent(b: Builder, x: Value) -> Value:
    """Return the tangent of x to 4 ulp, as `emit_sine` does."""
    return _emit(b, x, "tan", lambda: _near_tangent(b, x))


def _emit(b: Builder, x: Value, name: str, near_zero: Callable[[], Value]) -> Value:
    """Return a function of the C library, of vectors of float32 by ``near_zero`` unless a lane is far from zero."""
    if x.type == VD:
        return each(b, name, x)
    far = b.fcmp_ordered(">", apply(b, "fabs", x), constant(_FAR))
    some = b.icmp_signed("!=", b.bitcast(far, ir.IntType(LANES)), ir.IntType(LANES)(0))
    apart, near, done = (b.append_basic_block(f"sine.{place}") for place in ("apart", "near", "done"))
    b.cbranch(some, apart, near)
    b.position_at_end(apart)
    slow = b.fptrunc(each(b, name, b.fpext(x, VD)), VF)
    b.branch(done)
    b.position_at_end(near)
    fast = near_zero()
    b.branch(done)
    b.position_at_end(done)
    found = b.phi(VF)
    found.add_incoming(slow, apart)
    found.add_incoming(fast, near)
    return found


def each(b: Builder, name: str, *args: Value) -> Value:
    """Call a function of the C library on each lane of float64."""
    found = ir.Constant(VD, ir.Undefined)
    for lane in range(LANES):
        taken = [b.extract_element(value, I32(lane)) for value in args]
        found = b.insert_element(found, call(b, name, *taken, result=F64), I32(lane))
    return found


def _near(b: Builder, x: Value, turns: int) -> Value:
    quarter, sine, cosine = _parts(b, x)
    quarter = b.add(quarter, ir.Constant(VI, [turns] * LANES))
    found = b.select(b.trunc(quarter, VM), cosine, sine)
    sign = b.shl(b.lshr(quarter, ir.Constant(VI, [1] * LANES)), ir.Constant(VI, [31] * LANES))
    return b.bitcast(b.xor(b.bitcast(found, VI), sign), VF)


def _near_tangent(b: Builder, x: Value) -> Value:
    quarter, sine, cosine = _parts(b, x)
    odd = b.trunc(quarter, VM)
    return b.fdiv(b.select(odd, cosine, sine), b.select(odd, b.fneg(sine), cosine))


def _parts(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Return the nearest number of quarter turns, as int32, and the sine and the cosine of the rest."""
    wide = b.fpext(x, VD)
    number = apply(b, "rint", b.fmul(wide, constant(_TWO_OVER_PI, VD)))
    rest = fma(b, number, constant(-_QUARTER[0], VD), wide)
    r = b.fptrunc(fma(b, number, constant(-_QUARTER[1], VD), rest), VF)
    is_number = b.fcmp_ordered("ord", number, number)  # no number has no integer
    quarter = b.fptosi(b.select(is_number, number, constant(0.0, VD)), VI)
    square = b.fmul(r, r)
    sine = constant(_SINE[0])
    for c in _SINE[1:]:
        sine = fma(b, sine, square, constant(c))
    sine = fma(b, b.fmul(sine, square), r, r)
    # The sums above are 0.0 for -0.0.
    sine = b.select(b.fcmp_ordered("==", x, constant(0.0)), x, sine)
    cosine = constant(_COSINE[0])
    for c in _COSINE[1:]:
        cosine = fma(b, cosine, square, constant(c))
    cosine = fma(b, cosine, b.fmul(square, square), fma(b, square, constant(-0.5), constant(1.0)))
    return quarter, sine, cosine
