"""Copy 8-bit activations into the form that integer tiles read: channels side by side, padded, unsigned or of 16 bits.

Numbers of 16 bits are less their zero point, bounded to `LEAST_POINT` and `MOST_POINT`: sums of products need no other
correction for it, which would read all weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_weights import interleave_rows
from .integers import load_s32
from .point_limits import LEAST_POINT, MOST_POINT
from .vec import I8, I16, Builder, Value, pointer


def make(isa: str, how: str, signed: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel: ``vnni`` shifts signed numbers by 128, ``pairs`` widens to 16 bits, ``amx`` does neither.

    Arguments, strides in bytes: addresses of src, of dst (images, rows, columns, groups, padded channels) and of the zero
    point (s32; 0: none), which padding is filled with; height and width of src, its strides of image, channel, row and
    column; rows and columns of dst, the source rows and columns from one to the next, the padding ``top`` and ``left``;
    groups, channels of a group, and of a padded one. One item of work is a row of dst.
    """
    wide = 2 if how == "pairs" else 1
    least, most = (-128, 127) if signed else (0, 255)
    flips = how == "vnni" and signed
    subtracts = how == "pairs"
    move64, move16, move4, move1 = (_make_move(lanes, how, signed) for lanes in (64, 16, 4, 1))
    interleave4, interleave3 = (_make_interleave(how, signed, count) for count in (4, 3))
    put64, put1 = (_make_put(lanes, wide) for lanes in (64, 1))

    def move(to: int, at: int, count: int, less: int) -> None:
        i = 0
        while i + 64 <= count:
            move64(to + i * wide, at + i, less)
            i += 64
        while i + 16 <= count:
            move16(to + i * wide, at + i, less)
            i += 16
        while i + 4 <= count:
            move4(to + i * wide, at + i, less)
            i += 4
        while i < count:
            move1(to + i * wide, at + i, less)
            i += 1

    def fill(to: int, value: int, count: int) -> None:
        i = 0
        while i + 64 <= count:
            put64(to + i * wide, value)
            i += 64
        while i < count:
            put1(to + i * wide, value)
            i += 1

    def copy(
        begin: int, end: int, src: int, dst: int, point: int, height: int, width: int, image_stride: int,
        channel_stride: int, row_stride: int, column_stride: int, rows: int, columns: int, row_step: int,
        column_step: int, top: int, left: int, groups: int, inputs: int, padded: int,
    ) -> None:  # fmt: skip
        stored, less = 0, 0
        if point != 0:
            if subtracts:
                less = max(LEAST_POINT, min(MOST_POINT, load_s32(point)))
            else:
                stored = max(least, min(most, load_s32(point)))
        if flips:
            stored += 128
        channels = groups * inputs
        pixel = groups * padded * wide
        for item in range(begin, end):
            h = (item % rows) * row_step - top
            source = src + item // rows * image_stride + h * row_stride
            to = dst + item * columns * pixel
            first = columns
            last = columns
            if 0 <= h < height:
                first = min(columns, max(0, (left + column_step - 1) // column_step))
                last = max(first, min(columns, (width - 1 + left) // column_step + 1))
            fill(to, stored, first * groups * padded)
            at = source + (first * column_step - left) * column_stride
            if channel_stride == 1 and inputs == padded and column_step == 1 and column_stride == channels:
                move(to + first * pixel, at, (last - first) * channels, less)
            elif channel_stride == 1 and inputs == padded:
                for q in range(first, last):
                    move(to + q * pixel, at, channels, less)
                    at += column_step * column_stride
            else:
                start = first
                if (
                    groups == 1
                    and column_stride == 1
                    and column_step == 1
                    and (padded == 4 or (padded == 3 and inputs == 3))
                ):
                    while start + 16 <= last:
                        if padded == 4:
                            interleave4(to + start * pixel, at, channel_stride, inputs, less)
                        else:
                            interleave3(to + start * pixel, at, channel_stride, inputs, less)
                        start += 16
                        at += 16
                for q in range(start, last):
                    place = to + q * pixel
                    for group in range(groups):
                        if channel_stride == 1:
                            move(place, at + group * inputs, inputs, less)
                        else:
                            for c in range(inputs):
                                move1(place + c * wide, at + (group * inputs + c) * channel_stride, less)
                        for c in range(inputs, padded):
                            put1(place + c * wide, 0)
                        place += padded * wide
                    at += column_step * column_stride
            fill(to + last * pixel, stored, (columns - last) * groups * padded)

    return copy, types.void(*[types.int64] * 20)


def _make_move(lanes: int, how: str, signed: bool) -> Any:
    """Return the intrinsic that copies neighbouring numbers: addresses of the copy and of the numbers, what these are less."""
    narrow = ir.VectorType(I8, lanes)

    @intrinsic
    def move(_: Any, to: Any, at: Any, less: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            value = _converted(b, b.load(pointer(b, a[1], narrow), align=1), how, signed, a[2])
            b.store(value, pointer(b, a[0], value.type), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), emit

    return move


def _converted(b: Builder, value: Value, how: str, signed: bool, less: Value) -> Value:
    """Return numbers as tiles read them."""
    if how == "pairs":
        wide = ir.VectorType(I16, value.type.count)
        return b.sub(b.sext(value, wide) if signed else b.zext(value, wide), same_number(b, less, wide))
    if signed and how == "vnni":
        return b.xor(value, ir.Constant(value.type, [128] * value.type.count))
    return value


def same_number(b: Builder, number: Value, kind: ir.Type) -> Value:
    """Return a vector whose lanes have one number."""
    none = ir.Constant(kind, ir.Undefined)
    one = b.insert_element(none, b.trunc(number, kind.element), ir.IntType(32)(0))
    return b.shuffle_vector(one, none, ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count))


def _make_interleave(how: str, signed: bool, channels: int) -> Any:
    """Return the intrinsic that writes 16 pixels of 3 ``channels``, or of up to 4, each from a plane of its own.

    Arguments: address of the pixels, of the first plane, the distance of planes, their number, what numbers are less. Other
    channels are 0: their weights are, and so are they in the sums of pixels.
    """
    kind = ir.VectorType(I8, 16)

    @intrinsic
    def interleave(_: Any, to: Any, at: Any, plane: Any, count: Any, less: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            to, at, plane, count, less = a
            rows = []
            for n in range(channels):
                number = ir.IntType(64)(n)
                last = b.sub(count, ir.IntType(64)(1))
                chosen = b.select(b.icmp_signed("<", number, count), number, last)
                rows.append(b.load(pointer(b, b.add(at, b.mul(plane, chosen)), kind), align=1))
            value = _converted(
                b, interleave_rows(b, rows) if channels == 4 else _interleaved(b, rows), how, signed, less
            )
            if channels == 4:
                value = _first_of_four(b, value, count)
            b.store(value, pointer(b, to, value.type), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return interleave


def _first_of_four(b: Builder, value: Value, count: Value) -> Value:
    """Return 16 pixels of four channels, of which those from ``count`` on are 0."""
    width, number = value.type.element.width, ir.IntType(64)
    pixels = ir.VectorType(ir.IntType(4 * width), 16)
    kept = b.lshr(number(-1), b.sub(number(64), b.mul(count, number(width))))
    return b.bitcast(b.and_(b.bitcast(value, pixels), same_number(b, kept, pixels)), value.type)


def _interleaved(b: Builder, rows: list[Value]) -> Value:
    """Return three rows of 16 bytes with the bytes of one place side by side."""
    first, second, third = rows
    index = ir.IntType(32)
    both, last = (
        b.shuffle_vector(low, high, ir.Constant(ir.VectorType(index, 32), list(range(32))))
        for low, high in ((first, second), (third, third))
    )
    order = [16 * row + place for place in range(16) for row in range(3)]
    return b.shuffle_vector(both, last, ir.Constant(ir.VectorType(index, 48), order))


def _make_put(lanes: int, size: int) -> Any:
    """Return the intrinsic that fills with a number of ``size`` bytes: address, number."""
    kind = {1: I8, 2: I16}[size]

    @intrinsic
    def put(_: Any, to: Any, value: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            many = ir.VectorType(kind, lanes)
            b.store(same_number(b, a[1], many), pointer(b, a[0], many), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return put
