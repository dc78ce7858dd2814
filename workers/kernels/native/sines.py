"""Sines, cosines and tangents of vectors of float32 and float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import llvmlite.ir as ir

from .vec import F64, I32, I64, LANES, VD, VF, VI, VM, Builder, Value, apply, call, constant, fma

_VL: Final = ir.VectorType(I64, LANES)
#: Coefficients of sin(r) and cos(r) in r * r for |r| up to pi / 4, the highest first, from that of r**7 and r**8 on: Cephes'.
_SINE: Final = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE: Final = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
#: Coefficients of sin(r) and cos(r) of float64 as above, from that of r**13 and r**14 down to r**3 and r**4: fdlibm's.
_LONG_SINE: Final = (
    1.58969099521155010221e-10, -2.50507602534068634195e-8, 2.75573137070700676789e-6, -1.98412698298579493134e-4,
    8.33333333332248946124e-3, -1.66666666666666324348e-1,
)  # fmt: skip
_LONG_COSINE: Final = (
    -1.13596475577881948265e-11, 2.08757232129817482790e-9, -2.75573143513906633035e-7, 2.48015872894767294178e-5,
    -1.38888888888741095749e-3, 4.16666666666666019037e-2,
)  # fmt: skip
#: pi / 2 as a number of 33 bits, of which multiples up to 2**20 are exact, and the rest (fdlibm's).
_QUARTER: Final = (1.57079632673412561417, 6.07710050650619224932e-11)
_TWO_OVER_PI: Final = 0.63661977236758134308
#: That rest as a number of 33 bits and what is left (fdlibm's).
_REST: Final = (6.07710050630396597660e-11, 2.02226624879595063154e-21)
#: Beyond, the C library reduces the argument.
_FAR: Final = 1.5e6


def emit_sine(b: Builder, x: Value, turns: int) -> Value:
    """Return the sine of x plus ``turns`` quarter turns, 0 or 1, to 2 ulp, in float64 to 1; NaN of infinity.

    The argument is reduced with twice the bits of its type, so that zeros of the sine are precise too.
    """
    return _emit(b, x, ("sin", "cos")[turns], lambda: _near(b, x, turns))


def emit_tangent(b: Builder, x: Value) -> Value:
    """Return the tangent of x to 4 ulp, as `emit_sine` does; in float64 it is the C library's."""
    if x.type == VD:
        return each(b, "tan", x)
    return _emit(b, x, "tan", lambda: _near_tangent(b, x))


def _emit(b: Builder, x: Value, name: str, near_zero: Callable[[], Value]) -> Value:
    """Return a function of vectors by ``near_zero``, or, if a lane is far from zero, by the C library."""
    far = b.fcmp_ordered(">", apply(b, "fabs", x), constant(_FAR, x.type))
    some = b.icmp_signed("!=", b.bitcast(far, ir.IntType(LANES)), ir.IntType(LANES)(0))
    apart, near, done = (b.append_basic_block(f"sine.{place}") for place in ("apart", "near", "done"))
    b.cbranch(some, apart, near)
    b.position_at_end(apart)
    slow = each(b, name, x) if x.type == VD else b.fptrunc(each(b, name, b.fpext(x, VD)), VF)
    b.branch(done)
    b.position_at_end(near)
    fast = near_zero()
    b.branch(done)
    b.position_at_end(done)
    found = b.phi(x.type)
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
    quarter, sine, cosine = _long_parts(b, x) if x.type == VD else _parts(b, x)
    quarter = b.add(quarter, ir.Constant(VI, [turns] * LANES))
    found = b.select(b.trunc(quarter, VM), cosine, sine)
    halves = b.lshr(quarter, ir.Constant(VI, [1] * LANES))
    bits = _VL if x.type == VD else VI
    sign = b.shl(b.zext(halves, _VL) if x.type == VD else halves, ir.Constant(bits, [bits.element.width - 1] * LANES))
    return b.bitcast(b.xor(b.bitcast(found, bits), sign), x.type)


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


def _long_parts(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Return what `_parts` returns, of float64: the rest is a sum of two numbers."""
    number = apply(b, "rint", b.fmul(x, constant(_TWO_OVER_PI, VD)))
    is_number = b.fcmp_ordered("ord", number, number)
    quarter = b.fptosi(b.select(is_number, number, constant(0.0, VD)), VI)
    # Both products are exact, and so is the first difference.
    first = b.fsub(x, b.fmul(number, constant(_QUARTER[0], VD)))
    taken = b.fmul(number, constant(_REST[0], VD))
    rest = b.fsub(first, taken)
    part = b.fsub(rest, first)
    lost = b.fsub(b.fsub(first, b.fsub(rest, part)), b.fadd(taken, part))
    lost = b.fsub(lost, b.fmul(number, constant(_REST[1], VD)))
    r = b.fadd(rest, lost)
    low = b.fadd(b.fsub(rest, r), lost)
    square = b.fmul(r, r)
    sine, cosine = constant(_LONG_SINE[0], VD), constant(_LONG_COSINE[0], VD)
    for s, c in zip(_LONG_SINE[1:-1], _LONG_COSINE[1:], strict=False):
        sine = fma(b, sine, square, constant(s, VD))
        cosine = fma(b, cosine, square, constant(c, VD))
    cosine = fma(b, cosine, square, constant(_LONG_COSINE[-1], VD))
    cube, half = b.fmul(square, r), b.fmul(constant(0.5, VD), square)
    bent = b.fsub(b.fmul(square, b.fsub(b.fmul(constant(0.5, VD), low), b.fmul(cube, sine))), low)
    sine = b.fsub(r, b.fsub(bent, b.fmul(cube, constant(_LONG_SINE[-1], VD))))
    sine = b.select(b.fcmp_ordered("==", x, constant(0.0, VD)), x, sine)
    upper = b.fsub(constant(1.0, VD), half)
    lower = b.fsub(b.fsub(constant(1.0, VD), upper), half)
    return quarter, sine, b.fadd(upper, b.fadd(lower, b.fsub(b.fmul(b.fmul(square, square), cosine), b.fmul(r, low))))
