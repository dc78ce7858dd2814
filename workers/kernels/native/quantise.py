"""Convert numbers between f32 and 8-bit integers by scale and zero point: one tensor, a function of it, or two combined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np

from .byte_table import SIZE, make_look_up, store_byte
from .compiler import types
from .compiler.language import intrinsic
from .functions import ELTWISE
from .integer_dot import register_bits
from .integer_tile import PAIRED, SIZES, load_float, narrowed, narrowed_with, packed_pair, store_lanes
from .integers import load_s8, load_s32, load_u8
from .vec import (
    FUSES,
    I1,
    I8,
    I64,
    LANES,
    Builder,
    Value,
    allocate,
    apply,
    constant,
    fload,
    fma,
    lanes_below,
    maximum,
    minimum,
    pointer,
    splat,
)

#: Elements of one item of work, about.
CHUNK: Final = 4096
_RANGES: Final = {
    "u8": (0.0, 255.0), "s8": (-128.0, 127.0), "u16": (0.0, 65535.0), "s16": (-32768.0, 32767.0), "f32": (-np.inf, np.inf),
}  # fmt: skip
#: Divisors from here to the inverse have quotients by products, which neither overflow nor lose bits.
_LEAST_DIVISOR: Final = np.float32(2.0**-60)
#: Quotients up to this size are exact; larger ones are beyond every range.
_MOST_QUOTIENT: Final = 262144.0


@intrinsic
def room(_: Any) -> Any:
    """Return the address of room for two tables on the stack."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return b.ptrtoint(allocate(b, ir.ArrayType(I8, 2 * SIZE)), I64)

    return types.int64(), emit


def make(
    isa: str, first: str, second: str, result: str, rounds: bool = False, combined: str = "add", moves: str = "same",
    function: str = "", along: str = "", points: bool = False,
) -> tuple[Callable[..., None], Any]:  # fmt: skip
    """Return the kernel for sources of two data types (the second nothing: none) and a result of a third.

    Two sources are ``combined`` by ``add`` or ``mul``; the second ``moves`` as the first (``same``), has one number for each
    ``row`` of the first, or one for each element of a row (``lanes``). A ``function`` of eltwise is applied to all 256
    numbers of a source of bytes, and its results are looked up. The kernel ``rounds`` a quotient of a single f32 source, and
    that of a function, before the zero point is added, else after that. The former has one divisor, or one for each ``row``,
    or divisors for the elements of a row (``lanes``), ``along`` which zero points differ too if ``points`` is set.

    Arguments: addresses of the sources and of the result, then those of their scales (f32) and zero points (s32), source by
    source, each 0 for none; the length of rows and the number of all elements; the rows of an item of work; the number of
    rows; the rows that have the same divisors or numbers of the second source, and after how many of these (or rows of them)
    they begin again; and as floats the least result before scale and zero point, and the function's parameters.
    """
    parameters = isa, first, second, result, rounds, combined, moves, function, along == "lanes", points
    by_pairs = register_bits(isa) == PAIRED and result in ("u8", "s8") and not (rounds or function)
    convert, convert_two = (_make_convert(*parameters, vectors) for vectors in (1, 2 if by_pairs else 1))
    least, most = _RANGES[result]
    low_limit, high_limit = np.float32(least), np.float32(most)
    sizes = [SIZES.get(dtype, 0) for dtype in (first, second, result)]
    size0, size1, size2 = sizes
    of_bytes = first in ("u8", "s8") and second in ("u8", "s8")
    in_one, adds = bool(second) and result != "f32", combined == "add"
    by_row, by_lanes, by_table = moves == "row", moves == "lanes", bool(function)
    many, across = along == "row", along == "lanes"
    look_up = make_look_up(isa)
    load_number = {"u8": load_u8, "s8": load_s8}.get(second, fload)

    def quantise(
        begin: int, end: int, src0: int, src1: int, dst: int, scale0: int, point0: int, scale1: int, point1: int,
        scale2: int, point2: int, inner: int, count: int, together: int, rows: int, repeat: int, period: int, low: float,
        alpha: float, beta: float,
    ) -> None:  # fmt: skip
        factor0, factor1, divisor = np.float32(1.0), np.float32(1.0), np.float32(1.0)
        minus0, minus1, plus = np.float32(0.0), np.float32(0.0), np.float32(0.0)
        if scale0 != 0:
            factor0 = fload(scale0)
        if scale1 != 0:
            factor1 = fload(scale1)
        if scale2 != 0:
            divisor = fload(scale2)
        if point0 != 0:
            minus0 = np.float32(load_s32(point0))
        if point1 != 0:
            minus1 = np.float32(load_s32(point1))
        if point2 != 0:
            plus = np.float32(load_s32(point2))
        bound, a, b, number = np.float32(low), np.float32(alpha), np.float32(beta), np.float32(0.0)
        reciprocal = np.float32(1.0) / divisor
        # A quotient of f32 is divided unless the divisor is 1; one of few bits is a product if that is exact.
        simple = _LEAST_DIVISOR <= divisor <= np.float32(1.0) / _LEAST_DIVISOR
        if result == "f32":
            simple = divisor == np.float32(1.0)
        if in_one:
            # All scales and zero points are two factors and a number to add, or one of each for a product.
            bound = bound / divisor + plus
            # One bound for both: sums of bytes are numbers.
            if of_bytes and not bound > low_limit:
                bound = low_limit
            if adds:
                factor0, factor1 = factor0 / divisor, factor1 / divisor
                # One product is added unrounded, as ONNX Runtime does: other sums differ by one near halves.
                plus = plus - np.float32(float(minus0) * float(factor0) + float(minus1 * factor1))
            else:
                factor0 = factor0 * factor1 / divisor
        if by_table:
            bytes_of = room()
            table = bytes_of + SIZE
            for byte in range(SIZE):
                store_byte(bytes_of + byte, byte)
            for at in range(0, SIZE, 16):
                convert(bytes_of + at, 0, 0, table + at, 16, factor0, minus0, factor1, minus1, divisor, plus, bound, low_limit,
                        high_limit, reciprocal, a, b, number, simple)  # fmt: skip
            at = begin * inner
            # The 256 numbers are not read again.
            look_up(src0 + at, dst + at, min(count, end * inner) - at, table, bytes_of)
            return
        row = begin * together
        within, which = row % repeat, row // repeat % period
        while row < min(rows, end * together):
            first = row * inner
            stop = min(count, first + inner)
            y = src1 + first * size1
            if by_row:
                number = np.float32(load_number(src1 + which * size1))
            elif by_lanes:
                y = src1 + which * inner * size1
            z = point2
            if many:
                divisor = fload(scale2 + 4 * which)
                reciprocal = np.float32(1.0) / divisor
                simple = _LEAST_DIVISOR <= divisor <= np.float32(1.0) / _LEAST_DIVISOR
                if points:
                    plus = np.float32(load_s32(point2 + 4 * which))
            elif across:
                y = scale2 + 4 * which * inner
                z = point2 + 4 * which * inner
            start = first
            if by_pairs:
                start += (stop - first) // 32 * 32
                for at in range(first, start, 32):
                    convert_two(src0 + at * size0, y, z, dst + at * size2, 32, factor0, minus0, factor1, minus1, divisor, plus,
                                bound, low_limit, high_limit, reciprocal, a, b, number, simple)  # fmt: skip
                    if not by_row:
                        y += 32 * size1
            for at in range(start, stop, 16):
                convert(src0 + at * size0, y, z, dst + at * size2, stop - at, factor0, minus0, factor1, minus1, divisor, plus,
                        bound, low_limit, high_limit, reciprocal, a, b, number, simple)  # fmt: skip
                if across:
                    y += 64
                    z += 64
                elif not by_row:
                    y += 16 * size1
            row += 1
            within += 1
            if within == repeat:
                within = 0
                which += 1
                if which == period:
                    which = 0

    return quantise, types.void(*[types.int64] * 17, *[types.float64] * 3)


def _make_convert(
    isa: str, first: str, second: str, result: str, rounds: bool, combined: str, moves: str, function: str,
    across: bool, points: bool, vectors: int,
) -> Any:  # fmt: skip
    """Return the intrinsic that converts up to 16 elements; with ``across``, src1 has their divisors, as zero points are.

    That of two ``vectors`` converts 32, whose bytes are packed at once.
    """

    @intrinsic
    def convert(
        _: Any, src0: Any, src1: Any, zeros: Any, dst: Any, count: Any, factor0: Any, minus0: Any, factor1: Any, minus1: Any,
        divisor: Any, plus: Any, bound: Any, low: Any, high: Any, reciprocal: Any, alpha: Any, beta: Any, number: Any,
        simple: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            src0, src1, zeros, dst, count, *numbers, simple = a
            is_simple = b.icmp_unsigned("!=", simple, simple.type(0)) if simple.type != I1 else simple
            factor0, minus0, factor1, minus1, divisor, plus, bound, low, high, reciprocal, alpha, beta, number = (
                splat(b, each) for each in numbers
            )

            def converted(at: Value, at1: Value, mask: Value | None) -> Value:
                """Return 16 elements as floats, those that become integers in the bounds of the result."""
                value = load_float(b, at, first, mask)
                other = value
                if second:
                    other = number if moves == "row" else load_float(b, at1, second, mask)
                if second and result != "f32":
                    if combined == "add":
                        value = fma(b, value, factor0, fma(b, other, factor1, plus))
                    else:
                        value = fma(b, b.fmul(b.fsub(value, minus0), b.fsub(other, minus1)), factor0, plus)
                    if {first, second} <= {"u8", "s8"}:
                        value = maximum(b, value, bound)
                    else:
                        value = maximum(b, maximum(b, bound, value), low)
                    return minimum(b, value, high)
                if not rounds:
                    value = b.fmul(b.fsub(value, minus0), factor0)
                if second:
                    other = b.fmul(b.fsub(other, minus1), factor1)
                    value = b.fadd(value, other) if combined == "add" else b.fmul(value, other)
                    value = maximum(b, bound, value)
                if function:
                    value = ELTWISE[function](b, value, alpha, beta)
                if result == "f32":
                    return b.fadd(_chosen(b, is_simple, lambda: value, lambda: b.fdiv(value, divisor)), plus)
                # Bounds are taken in this order: NaN becomes the least number, as in ONNX's QuantizeLinear.
                if across:
                    found = b.fdiv(value, load_float(b, at1, "f32", mask))
                else:
                    found = _quotient(b, isa, value, divisor, reciprocal, is_simple)
                if rounds or function:
                    added = zero_points(mask)
                    return minimum(b, maximum(b, found, b.fsub(low, added)), b.fsub(high, added))
                return minimum(b, maximum(b, b.fadd(found, plus), low), high)

            def zero_points(mask: Value | None) -> Value:
                return load_float(b, zeros, "s32", mask) if across and points else plus

            def piece(mask: Value | None) -> None:
                value = converted(src0, src1, mask)
                if result == "f32":
                    stored = value
                elif (rounds or function) and not (second and result != "f32"):
                    stored = narrowed_with(b, value, zero_points(mask), result)
                else:
                    stored = narrowed(b, value, result)
                store_lanes(b, dst, stored, mask)

            if vectors == 2:
                places = [
                    [b.add(at, I64(half * SIZES.get(dtype, 0))) for at, dtype in ((src0, first), (src1, second))]
                    for half in (0, LANES)
                ]
                low_half, high_half = (converted(at, at1, None) for at, at1 in places)
                packed = packed_pair(b, low_half, high_half, result)
                b.store(packed, pointer(b, dst, packed.type), align=1)
                return context.get_dummy_value()
            with b.if_else(b.icmp_signed("<", count, I64(LANES))) as (part, whole):
                with part:
                    piece(lanes_below(b, count))
                with whole:
                    piece(None)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5, *[types.float32] * 13, types.boolean), emit

    return convert


def _quotient(b: Builder, isa: str, value: Value, divisor: Value, reciprocal: Value, is_simple: Value) -> Value:
    """Return value / divisor, of products if that is as exact (Markstein), which take half of a division's time."""
    if isa not in FUSES:
        return b.fdiv(value, divisor)

    def product() -> Value:
        # Infinity has no rest: a bound leaves it infinite, and minus infinity becomes NaN, which becomes the least number, too.
        near = minimum(b, b.fmul(value, reciprocal), constant(_MOST_QUOTIENT))
        rest = apply(b, "fma", b.fneg(near), divisor, value)
        return fma(b, rest, reciprocal, near)

    return _chosen(b, is_simple, product, lambda: b.fdiv(value, divisor))


def _chosen(b: Builder, condition: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
    """Return one of two values by a condition that is the same for a whole tensor; only that one is computed."""
    with b.if_else(condition) as (then, otherwise):
        with then:
            first = yes()
            after_first = b.block
        with otherwise:
            second = no()
            after_second = b.block
    found = b.phi(first.type)
    found.add_incoming(first, after_first)
    found.add_incoming(second, after_second)
    return found
