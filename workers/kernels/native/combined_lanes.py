"""Functions of lanes of two or three tensors: a choice, comparisons, logic, bits, sums that wrap, whole quotients.

A kind of elements is ``s``, ``u`` or ``f`` with its bits, as in ``s32``; ``b16`` is bfloat16. Floats of 16 bits are compared as
whole numbers of the same order, which no level has to convert.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .elements import masked_load
from .first_lanes import masked_store
from .vec import F32, F64, FUSES, I1, I8, LANES, Builder, Value, call, isa_of, lanes_below, pointer, splat

#: Function -> LLVM's predicate of a comparison.
_COMPARISONS: Final = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "eq": "==", "ne": "!="}
_LOGIC: Final = ("and", "or", "xor")
#: Kind of floats of 16 bits -> the bits of infinity, and those of 1.
_NARROW: Final = {"f16": (0x7C00, 0x3C00), "b16": (0x7F80, 0x3F80)}


def lanes_of(kind: str) -> int:
    """Return how many elements of a kind fill a vector of 64 bytes, at least 16 of them."""
    return max(16, 512 // int(kind[1:]))


def make_combination(function: str, kind: str, result: str, lanes: int, moves: tuple[bool, ...]) -> Any:
    """Return the intrinsic that combines ``lanes`` elements at the addresses of src0, src1 and src2 and stores them at dst.

    Operands that do not move have one element for all lanes. ``select`` has a condition of bytes and two operands of the
    kind, the others have two operands of the kind, and no third.
    """

    @intrinsic
    def combination(_: Any, src0: Any, src1: Any, src2: Any, dst: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            def operand(number: int, of: ir.Type) -> Value:
                if lanes > 1 and not moves[number]:
                    return splat(b, b.load(pointer(b, a[number], of), align=1), lanes)
                return b.load(pointer(b, a[number], _wide(of, lanes)), align=1)

            value = _result(b, function, kind, result, operand)
            b.store(value, pointer(b, a[3], value.type), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), emit

    return combination


def make_rest(function: str, kind: str, result: str, moves: tuple[bool, ...]) -> Any:
    """Return the intrinsic that combines as `make_combination`'s does, the first ``count`` of `LANES` elements.

    One at a time, elements behind the vectors of short rows would take most of the time.
    """

    @intrinsic
    def rest(_: Any, src0: Any, src1: Any, src2: Any, dst: Any, count: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            mask = lanes_below(b, a[4])

            def operand(number: int, of: ir.Type) -> Value:
                if not moves[number]:
                    return splat(b, b.load(pointer(b, a[number], of), align=1), LANES)
                return masked_load(b, a[number], of, mask)

            masked_store(b, _result(b, function, kind, result, operand), a[3], mask)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return rest


def _result(b: Builder, function: str, kind: str, result: str, operand: Callable[[int, ir.Type], Value]) -> Value:
    """Return a function of operands, each given by its number and the type of its elements."""
    element = _type(kind)
    if function == "select":
        condition = operand(0, I8)
        chosen = b.icmp_unsigned("!=", condition, _same(condition.type, 0))
        return b.select(chosen, operand(1, element), operand(2, element))
    x = operand(0, element)
    value = _combined(b, function, kind, x, operand(1, element))
    if function not in _COMPARISONS and function not in _LOGIC:
        return value
    lanes = x.type.count if isinstance(x.type, ir.VectorType) else 1
    return _truth(b, value, result, _wide(_type(result), lanes))


def _combined(b: Builder, function: str, kind: str, x: Value, y: Value) -> Value:
    is_float = kind[0] == "f"
    if function in _COMPARISONS:
        return _compared(b, _COMPARISONS[function], kind, x, y)
    if function in _LOGIC:
        left, right = (_compared(b, "!=", kind, each, _same(each.type, 0)) for each in (x, y))
        return {"and": b.and_, "or": b.or_, "xor": b.xor}[function](left, right)
    if function.startswith(("bit_", "shift_")):
        return _bitwise(b, function, kind, x, y)
    if function == "wrap_abs_diff":
        less = (b.icmp_signed if kind[0] == "s" else b.icmp_unsigned)("<", x, y)
        return b.select(less, b.sub(y, x), b.sub(x, y))
    if function == "wrap_pow":
        return _whole_power(b, kind, x, y)
    if function.startswith("wrap_"):
        return {"wrap_add": b.add, "wrap_sub": b.sub, "wrap_mul": b.mul}[function](x, y)
    if is_float:
        return _float_remainder(b, function, x, y)
    return _divided(b, function, kind, x, y)


def _truth(b: Builder, value: Value, result: str, wide: ir.Type) -> Value:
    """Return 1 of a kind in the lanes that are true, 0 in the others."""
    if result in _NARROW:
        return b.select(value, _same(wide, _NARROW[result][1]), _same(wide, 0))
    return b.uitofp(value, wide) if result[0] == "f" else b.zext(value, wide)


def _compared(b: Builder, predicate: str, kind: str, x: Value, y: Value) -> Value:
    if kind in _NARROW:
        return _compared_narrow(b, predicate, _NARROW[kind][0], x, y)
    if kind[0] == "f":
        # NaN is unlike everything, itself too.
        return b.fcmp_unordered("!=", x, y) if predicate == "!=" else b.fcmp_ordered(predicate, x, y)
    return (b.icmp_signed if kind[0] == "s" else b.icmp_unsigned)(predicate, x, y)


def _compared_narrow(b: Builder, predicate: str, infinity: int, x: Value, y: Value) -> Value:
    """Compare floats of 16 bits by their bits: the sign counts as that of the rest, so that -0 is 0."""
    orders, numbers = [], []
    for each in (x, y):
        rest = b.and_(each, _same(each.type, 0x7FFF))
        orders.append(b.select(b.icmp_signed("<", each, _same(each.type, 0)), b.neg(rest), rest))
        numbers.append(b.icmp_unsigned("<=", rest, _same(each.type, infinity)))
    both = b.and_(*numbers)
    found = b.icmp_signed(predicate, *orders)
    return b.or_(found, b.not_(both)) if predicate == "!=" else b.and_(found, both)


def _bitwise(b: Builder, function: str, kind: str, x: Value, y: Value) -> Value:
    """Return a function of bits; a number of places that is negative counts as a large one."""
    if function.startswith("bit_"):
        return {"bit_and": b.and_, "bit_or": b.or_, "bit_xor": b.xor}[function](x, y)
    bits = int(kind[1:])
    large = b.icmp_unsigned(">=", y, _same(y.type, bits))
    if function == "shift_right" and kind[0] == "s":
        return b.ashr(x, b.select(large, _same(y.type, bits - 1), y))
    places = b.select(large, _same(y.type, 0), y)
    shifted = b.shl(x, places) if function == "shift_left" else b.lshr(x, places)
    return b.select(large, _same(x.type, 0), shifted)


def _whole_power(b: Builder, kind: str, x: Value, y: Value) -> Value:
    """Return the low bits of a power of integers, a product for each bit of the largest exponent."""
    zero, one = _same(x.type, 0), _same(x.type, 1)
    rest, first = y, one
    if kind[0] == "s":
        # A negative exponent gives 0, and that of 1 or -1 whether it is odd.
        below = b.icmp_signed("<", y, zero)
        unit = b.or_(b.icmp_signed("==", x, one), b.icmp_signed("==", x, _same(x.type, -1)))
        rest = b.select(below, b.and_(y, one), y)
        vanishes = b.and_(below, b.not_(unit))
        rest, first = b.select(vanishes, zero, rest), b.select(vanishes, zero, one)
    before, step, done = b.block, b.append_basic_block("power"), b.append_basic_block("raised")
    b.branch(step)
    b.position_at_end(step)
    found, base, left = (b.phi(x.type) for _ in range(3))
    odd = b.icmp_unsigned("!=", b.and_(left, one), zero)
    product, square, fewer = b.select(odd, b.mul(found, base), found), b.mul(base, base), b.lshr(left, one)
    for phi, start, again in ((found, first, product), (base, x, square), (left, rest, fewer)):
        phi.add_incoming(start, before)
        phi.add_incoming(again, step)
    b.cbranch(_any(b, b.icmp_unsigned("!=", fewer, zero)), step, done)
    b.position_at_end(done)
    return product


def _any(b: Builder, truths: Value) -> Value:
    """Return whether one of the lanes, or a scalar, is true."""
    if not isinstance(truths.type, ir.VectorType):
        return truths
    return call(b, f"llvm.vector.reduce.or.v{truths.type.count}i1", truths, result=I1)


def _float_remainder(b: Builder, function: str, x: Value, y: Value) -> Value:
    """Return the remainder of x / y: of the sign of x (``fmod``) or of y (``mod``)."""
    rest = _float_rest(b, x, y)
    if function == "fmod":
        return rest
    zero = _same(x.type, 0.0)
    differs = b.xor(b.fcmp_ordered("<", rest, zero), b.fcmp_ordered("<", y, zero))
    differs = b.and_(differs, b.fcmp_unordered("!=", rest, zero))
    return b.select(differs, b.fadd(rest, y), rest)


def _float_rest(b: Builder, x: Value, y: Value) -> Value:
    """Return the remainder of x / y with the sign of x, exactly as C's ``fmod``, which takes some hundred cycles each.

    The quotient, rounded towards 0, is the right one or one too large if it is below a bound, and then the rest of either is
    exact: a fused product needs no room, and f32 times a quotient of 29 bits fits float64.
    """
    lanes = x.type.count if isinstance(x.type, ir.VectorType) else 1
    kind, fused = x.type.element if lanes > 1 else x.type, isa_of(b) in FUSES
    if kind == F64:
        return _rest_below(b, x, y, 52, True, _library_rest) if fused else b.frem(x, y)

    def rest_by_float64(b: Builder, x: Value, y: Value) -> Value:
        wide = _wide(F64, lanes)

        def remainder(b: Builder, left: Value, right: Value) -> Value:
            return b.fpext(b.frem(x, y), wide)

        return b.fptrunc(_rest_below(b, b.fpext(x, wide), b.fpext(y, wide), 29, False, remainder), x.type)

    return _rest_below(b, x, y, 23, True, rest_by_float64) if fused else rest_by_float64(b, x, y)


def _library_rest(b: Builder, x: Value, y: Value) -> Value:
    return b.frem(x, y)


def _rest_below(b: Builder, x: Value, y: Value, bits: int, fused: bool, otherwise: Any) -> Value:
    """Return the remainder of x / y by a quotient of ``bits``; if one in the vector is larger, that of ``otherwise``."""
    lanes = x.type.count if isinstance(x.type, ir.VectorType) else 1
    kind = x.type.element if lanes > 1 else x.type
    suffix = ("" if lanes == 1 else f"v{lanes}") + ("f32" if kind == F32 else "f64")
    quotient = call(b, f"llvm.trunc.{suffix}", b.fdiv(x, y), result=x.type)
    if fused:
        rest = call(b, f"llvm.fma.{suffix}", b.fneg(quotient), y, x, result=x.type)
    else:
        rest = b.fsub(x, b.fmul(quotient, y))
    divisor, times = (call(b, f"llvm.fabs.{suffix}", each, result=x.type) for each in (y, quotient))
    step = call(b, f"llvm.copysign.{suffix}", divisor, x, result=x.type)
    # One too large: the rest has the other sign.
    zero = _same(x.type, 0.0)
    over = b.select(b.fcmp_ordered("<", x, zero), b.fcmp_ordered(">", rest, zero), b.fcmp_ordered("<", rest, zero))
    rest = b.select(over, b.fadd(rest, step), rest)
    rest = call(b, f"llvm.copysign.{suffix}", rest, x, result=x.type)
    infinite = b.and_(b.fcmp_ordered("==", divisor, _same(x.type, math.inf)), b.fcmp_ordered("==", quotient, zero))
    exact = b.select(infinite, x, rest)
    large = b.fcmp_ordered(">=", times, _same(x.type, float(1 << bits)))
    before = b.block
    with b.if_then(_any(b, large), likely=False):
        slow = otherwise(b, x, y)
        other = b.block
    found = b.phi(x.type)
    found.add_incoming(exact, before)
    found.add_incoming(slow, other)
    return found


def _divided(b: Builder, function: str, kind: str, x: Value, y: Value) -> Value:
    """Return the quotient or remainder of integers, 0 for a division by 0; a quotient that is too large is the largest."""
    zero, one = _same(y.type, 0), _same(y.type, 1)
    none = b.icmp_signed("==", y, zero)
    if kind[0] == "u":
        safe = b.select(none, one, y)
        quotient = _quotient(b, kind, x, safe)
        found = quotient if function.endswith("div") else b.sub(x, b.mul(quotient, safe))
        return b.select(none, zero, found)
    bits = int(kind[1:])
    minus, least, most = (_same(y.type, value) for value in (-1, -(1 << (bits - 1)), (1 << (bits - 1)) - 1))
    # The least number divided by -1 overflows, which processors refuse.
    negated = b.icmp_signed("==", y, minus)
    safe = b.select(b.or_(none, negated), one, y)
    quotient = _quotient(b, kind, x, safe)
    rest = b.sub(x, b.mul(quotient, safe))
    # Rounded down, a quotient is one less, and its remainder has the sign of the divisor.
    differs = b.and_(b.icmp_signed("!=", rest, zero), b.icmp_signed("<", b.xor(rest, safe), zero))
    opposite = b.select(b.icmp_signed("==", x, least), most, b.sub(zero, x))
    if function in ("mod", "fmod"):
        found = b.select(differs, b.add(rest, safe), rest) if function == "mod" else rest
        return b.select(b.or_(none, negated), zero, found)
    found = b.select(differs, b.sub(quotient, one), quotient) if function == "floor_div" else quotient
    return b.select(none, zero, b.select(negated, opposite, found))


def _quotient(b: Builder, kind: str, x: Value, y: Value) -> Value:
    """Return the quotient of integers, rounded towards 0, if it is none that overflows.

    No processor divides vectors of integers. The quotient of floats that have 8 bits more is the same: it is off by less than
    1 / (256 y), and the exact one is a whole number or at least 1 / y from the next.
    """
    signed, bits = kind[0] == "s", int(kind[1:])
    if not isinstance(x.type, ir.VectorType):
        return (b.sdiv if signed else b.udiv)(x, y)
    if bits == 64:
        return _long_quotient(b, signed, x, y)
    wide = _wide(F64 if bits == 32 else F32, x.type.count)
    widen, cut = (b.sitofp, b.fptosi) if signed else (b.uitofp, b.fptoui)
    return cut(b.fdiv(widen(x, wide), widen(y, wide)), x.type)


def _long_quotient(b: Builder, signed: bool, x: Value, y: Value) -> Value:
    """Return the quotient of vectors of integers of 64 bits, by float64 if all of them are nearer to 0 than 2**51.

    The quotient of floats is off by less than 2**51 / (2**53 y), so that it is on the same side of a whole number. Added to
    1.5 * 2**52, a whole number is in the low bits of a float.
    """
    divide = b.sdiv if signed else b.udiv
    if isa_of(b) not in FUSES:
        return divide(x, y)
    lanes = x.type.count
    wide, low = _wide(F64, lanes), _same(x.type, 1 << 51)
    bits, place = _same(x.type, 0x4338 << 48), _same(wide, 1.5 * 2**52)
    left, right = (b.fsub(b.bitcast(b.add(each, bits), wide), place) for each in (x, y))
    quotient = call(b, f"llvm.trunc.v{lanes}f64", b.fdiv(left, right), result=wide)
    near = b.sub(b.bitcast(b.fadd(quotient, place), x.type), bits)
    above = [
        b.icmp_unsigned(">=", b.add(each, low), _same(x.type, 1 << 52)) if signed else b.icmp_unsigned(">=", each, low)
        for each in (x, y)
    ]
    before = b.block
    with b.if_then(_any(b, b.or_(*above)), likely=False):
        slow = divide(x, y)
        other = b.block
    found = b.phi(x.type)
    found.add_incoming(near, before)
    found.add_incoming(slow, other)
    return found


def _type(kind: str) -> ir.Type:
    if kind in ("f32", "f64"):
        return ir.FloatType() if kind == "f32" else ir.DoubleType()
    return ir.IntType(int(kind[1:]))


def _wide(kind: ir.Type, lanes: int) -> ir.Type:
    return kind if lanes == 1 else ir.VectorType(kind, lanes)


def _same(kind: ir.Type, value: float) -> ir.Constant:
    """Return a constant of a scalar or vector type with one value in every lane."""
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [ir.Constant(kind.element, value)] * kind.count)
    return ir.Constant(kind, value)
