"""Depthwise convolution of row-major planes: 16 neighbouring outputs of a row a vector.

A work item is a band of rows of one plane, all columns or a piece of them. Its part of the source, of a window in three
dimensions rows of several planes (*slabs*), is copied into scratch memory with zeros in place of the padding, columns that are
a stride apart side by side (*phases*). So every tap of a vector of outputs is 16 neighbouring floats, and no load needs a mask.
A tile is a vector of each of some rows: they share loads and weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np

from .compiler import types
from .compiler.language import intrinsic
from .phases import phases_of
from .plane_copy import end_of_copy, make_copy_columns, make_copy_row, make_is_seen
from .stack_room import stack_room
from .vec import (
    F32,
    I32,
    I64,
    VF,
    Builder,
    Value,
    call,
    constant,
    fma,
    isa_of,
    lanes_below,
    load,
    maximum,
    pointer,
    splat,
    store,
    vbroadcast,
    vector,
    vfma,
    vload,
    vset,
    vstore,
)  # fmt: skip

#: Bytes of a copy that is on the stack.
ROOM: Final = 32 << 10
#: Rows of a tile whose taps are not written out; and those of one whose columns are, by ISA level, at most.
_ROWS: Final = 4
_ROWS_OF_COLUMNS: Final = {"x86-64": 2, "x86-64-v2": 2, "x86-64-v3": 3, "x86-64-v4": 8}
#: Sums at least of a tile of columns: two additions begin in a cycle, and each takes four.
_SUMS: Final = {"x86-64-v4": 8}


def make(
    isa: str,
    kernel: tuple[int, int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    on_stack: bool,
    rows: int = 4,
) -> tuple[Callable[..., None], Any]:
    """Return the kernel for a window, whose taps are written out, or those of a column alone: ``kernel`` is (0, height, 0).

    It is for any window if that is (0, 0, 0). A ``dilation`` of 1 is dense. The copy of an item has at most `ROOM` bytes if it is
    ``on_stack``. A tile whose taps or columns are written out has ``rows``, or as many as registers hold.

    Arguments: addresses of src, weights (row-major), bias (0: none), dst, residual (0: none) and scratch memory; its bytes for
    one item; channels of dst, and of these for a channel of src; height and width of src and dst; bands of a plane and rows of
    one; pieces of a row and columns of one; height and width of the window; padding above and at the left; bytes of a phase and
    of a slab of the copy; slabs of src and dst, and window, stride, dilation and padding in slabs; the lower bounds before and
    after the residual is added.
    """
    (down, right), (reach_y, reach_x) = stride, dilation
    written_out, has_columns = kernel[2] > 0, kernel[1] > 0
    few = _ROWS
    if has_columns:
        few = min(rows, rows_of_tile(isa, kernel[1], rows) if written_out else _ROWS_OF_COLUMNS[isa])
    tile = _make_tile(few, kernel, stride, dilation)
    one = _make_tile(1, kernel, stride, dilation)
    tile_by_columns = _make_tile_by_columns(few, -(-_SUMS.get(isa, 1) // few), kernel[1], stride, dilation)
    one_by_columns = _make_tile_by_columns(1, _SUMS.get(isa, 1), kernel[1], stride, dilation)
    copy_row = make_copy_row(right, phases_of(kernel[2], reach_x, right))
    is_seen = make_is_seen(kernel[1], reach_y, down)
    # With AVX-512, masked loads take the time of others.
    frames = isa != "x86-64-v4" and right <= 2
    copy_columns = make_copy_columns(right)
    room_on_stack = stack_room(ROOM)

    def depthwise(
        begin: int, end: int, src: int, weights: int, bias: int, dst: int, residual: int, scratch: int, room: int,
        channels: int, shared: int, height: int, width: int, out_height: int, out_width: int, bands: int, band: int, pieces: int,
        piece: int, window_h: int, window_w: int, top: int, left: int, phase: int, slab: int,
        depth: int, out_depth: int, window_d: int, stride_d: int, reach_d: int, front: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        lower, upper = np.float32(low), np.float32(bound)
        # Each range of items has its own memory, which stays in the cache.
        copy = room_on_stack() if on_stack else scratch + begin * room
        row = right * phase
        line = 4 * out_width
        nothing = vset(np.float32(0.0))
        framed = False
        inner = min(width, right * (out_width + (window_w - 1) * reach_x // right) - left)
        if frames:
            # One piece is a row: the padding at its ends is in the same places of each copy.
            framed = pieces == 1 and inner > 0 and end_of_copy(left, inner, right) * 4 <= phase
        # Lanes behind a row's columns are multiplied, too: with numbers below 2**-126, which may be there, that takes 150 cycles.
        for place in range(copy, copy + room, 64):
            vstore(place, nothing)
        # If an input has one output, all items follow each other in dst.
        stop = min((end - (end - 1) // bands * bands) * band, out_height) + (end - 1) // bands * out_height
        stop = dst + stop * line - 64
        for item in range(begin, end):
            # Outputs of one input follow each other, and read one copy.
            part = item // shared
            number = item - part * shared
            rest = part // pieces
            plane = rest // bands
            first_row = (rest - plane * bands) * band
            first_column = (part - rest * pieces) * piece
            rows = min(band, out_height - first_row)
            columns = min(piece, out_width - first_column)
            y, x = first_row * down - top, first_column * right - left
            stack = plane // out_depth
            d = plane - stack * out_depth
            if number == 0 or item == begin:
                seen = columns + (window_w - 1) * reach_x // right
                for number_d in range(window_d):
                    z = d * stride_d - front + number_d * reach_d
                    source = src + 4 * (stack * depth + z) * height * width
                    seen_rows = height if 0 <= z < depth else 0
                    for number_y in range((rows - 1) * down + (window_h - 1) * reach_y + 1):
                        if is_seen(number_y) == 0:
                            continue
                        place = copy + number_d * slab + number_y * row
                        if not framed:
                            inside = width if 0 <= y + number_y < seen_rows else 0
                            copy_row(source + 4 * (y + number_y) * inside, x, inside, place, phase, seen)
                        elif 0 <= y + number_y < seen_rows:
                            copy_columns(source + 4 * (y + number_y) * width, left, inner, place, phase)
                        else:
                            for to in range(place, place + row, 64):
                                vstore(to, nothing)
            stack = stack * shared + number
            plane = stack * out_depth + d
            channel = stack % channels
            start = vset(np.float32(0.0))
            if bias != 0:
                start = vbroadcast(bias + 4 * channel)
            taps = weights + 4 * channel * window_d * window_h * window_w
            first = 4 * ((plane * out_height + first_row) * out_width + first_column)
            # Up to here 16 outputs may be stored where the row has fewer left: what is behind them is stored later.
            last = 0
            if pieces == 1 and residual == 0:
                last = stop if shared == 1 else dst + first + rows * line - 64
            done = 0
            while done < rows:
                column = (columns - 1) & -16
                count = columns - column
                if done + few > rows and rows >= few and residual == 0:
                    # Some rows twice take less time than a tile for each of the others.
                    done = rows - few
                turns = few if done + few <= rows else 1
                while column >= 0:
                    at = copy + done * down * row + 4 * column
                    to = first + done * line + 4 * column
                    other = residual + to if residual != 0 else 0
                    if written_out:
                        if turns == few:
                            tile(at, row, phase, slab, taps, start, dst + to, line, other, count, last, lower, upper)
                        else:
                            one(at, row, phase, slab, taps, start, dst + to, line, other, count, last, lower, upper)
                    elif has_columns:
                        if turns == few:
                            tile_by_columns(
                                at, row, phase, slab, taps, start, dst + to, line, other, count, last, window_d, window_w, lower,
                                upper,
                            )  # fmt: skip
                        else:
                            one_by_columns(
                                at, row, phase, slab, taps, start, dst + to, line, other, count, last, window_d, window_w, lower,
                                upper,
                            )  # fmt: skip
                    else:
                        step, below = reach_y * row, down * row if turns == few else 0
                        sum0, sum1, sum2, sum3 = start, start, start, start
                        tap = taps
                        for tap_d in range(window_d):
                            for tap_y in range(window_h):
                                line_at = at + tap_d * slab + tap_y * step
                                for tap_x in range(window_w):
                                    place = line_at + tap_x * reach_x // right * 4 + tap_x * reach_x % right * phase
                                    factor = vbroadcast(tap)
                                    tap += 4
                                    sum0 = vfma(vload(place), factor, sum0)
                                    sum1 = vfma(vload(place + below), factor, sum1)
                                    sum2 = vfma(vload(place + 2 * below), factor, sum2)
                                    sum3 = vfma(vload(place + 3 * below), factor, sum3)
                        finish(sum0, dst + to, other, count, last, lower, upper)
                        if turns == few:
                            step = line if other != 0 else 0
                            finish(sum1, dst + to + line, other + step, count, last, lower, upper)
                            finish(sum2, dst + to + 2 * line, other + 2 * step, count, last, lower, upper)
                            finish(sum3, dst + to + 3 * line, other + 3 * step, count, last, lower, upper)
                    column -= 16
                    count = 16
                done += turns

    return depthwise, types.void(*[types.int64] * 31, types.float64, types.float64)


def rows_of_tile(isa: str, height: int, most: int = _ROWS) -> int:
    """Return the rows of a tile: as many as registers hold the sums of, beside the weights of a column of the window."""
    if height == 0 or isa == "x86-64-v4":
        return most
    return max(1, min(_ROWS, (14 - height) // 2 if isa == "x86-64-v3" else (14 - height) // 4))


def _make_tile(rows: int, kernel: tuple[int, int, int], stride: tuple[int, int], dilation: tuple[int, int]) -> Any:
    """Return the intrinsic that computes a vector of outputs in each of some rows."""

    @intrinsic
    def tile(
        _: Any, at: Any, row: Any, phase: Any, slab: Any, taps: Any, start: Any, to: Any, line: Any, other: Any, count: Any,
        last: Any, low: Any, bound: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            sums = _emit_sums(b, rows, kernel, stride, dilation, a[:6])
            _emit_finish(b, sums, *a[6:])
            return context.get_dummy_value()

        numbers = [types.int64] * 5
        return types.void(*numbers, vector, *numbers, types.float32, types.float32), emit

    return tile


def _emit_sums(
    b: Builder,
    rows: int,
    kernel: tuple[int, int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    a: list[Value],
) -> list[Value]:
    """Return the sums of a tile: column by column of the window, each vector of the source loaded once for all rows."""
    at, row, phase, slab, taps, start = a
    sums = [start] * rows
    slabs, height, width = kernel
    lines = sorted({one * stride[0] + y * dilation[0] for one in range(rows) for y in range(height)})
    places = {number: b.add(at, b.mul(row, I64(number))) for number in lines}
    for z, x in itertools.product(range(slabs), range(width)):
        column, number = divmod(x * dilation[1], stride[1])
        aside = b.add(b.add(b.mul(phase, I64(number)), b.mul(slab, I64(z))), I64(4 * column))
        factors = [
            splat(b, b.load(pointer(b, b.add(taps, I64(4 * ((z * height + y) * width + x))), F32), align=4))
            for y in range(height)
        ]
        for number in lines:
            seen = load(b, b.add(places[number], aside))
            for one in range(rows):
                y, apart = divmod(number - one * stride[0], dilation[0])
                if apart == 0 and 0 <= y < height:
                    sums[one] = fma(b, seen, factors[y], sums[one])
    return sums


def _make_tile_by_columns(
    rows: int, parts: int, height: int, stride: tuple[int, int], dilation: tuple[int, int]
) -> Any:
    """Return the intrinsic that does the same in a loop over the columns of all slabs of the window, whose number is given.

    A row has a sum of each ``parts``-th row of the window: additions to one sum wait for each other.
    """

    @intrinsic
    def tile(
        _: Any, at: Any, row: Any, phase: Any, slab: Any, taps: Any, start: Any, to: Any, line: Any, other: Any, count: Any,
        last: Any, slabs: Any, columns: Any, low: Any, bound: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            at, row, phase, slab, taps, start = a[:6]
            slabs, columns = a[11:13]
            before, turn, ended = b.block, b.append_basic_block("column"), b.append_basic_block("ended")
            b.branch(turn)
            b.position_at_end(turn)
            z, x, base, factor = (b.phi(I64) for _ in range(4))
            carried = [b.phi(VF) for _ in range(rows * parts)]
            reach = b.mul(x, I64(dilation[1]))
            aside = b.mul(phase, b.urem(reach, I64(stride[1])))
            aside = b.add(b.add(base, aside), b.mul(b.udiv(reach, I64(stride[1])), I64(4)))
            lines = sorted({one * stride[0] + y * dilation[0] for one in range(rows) for y in range(height)})
            sums, factors, below = list(carried), dict[int, Value](), b.mul(columns, I64(4))
            last, line_at, factor_at = 0, aside, factor
            for number in lines:
                # A fence behind the sums so far: else LLVM would load later lines and factors, and keep vectors on the stack.
                seen_by = sums if isa_of(b) == "x86-64-v4" else []
                kind = ir.FunctionType(I64, [I64, *(VF for _ in seen_by)])
                line_at = b.add(line_at, b.mul(row, I64(number - last)))
                line_at, last = (
                    b.asm(kind, "", f"=r,0{',v' * len(seen_by)},~{{memory}}", [line_at, *seen_by], True),
                    number,
                )
                seen = load(b, line_at)
                for one in range(rows):
                    y, apart = divmod(number - one * stride[0], dilation[0])
                    if apart == 0 and 0 <= y < height:
                        if y not in factors:
                            # As late as possible: registers hold the factors of as many taps as a line has, not of all.
                            factors[y] = splat(b, b.load(pointer(b, factor_at, F32), align=4))
                            factor_at = b.add(factor_at, below)
                        place_of = one * parts + y % parts
                        sums[place_of] = fma(b, seen, factors[y], sums[place_of])
            following = b.add(x, I64(1))
            is_last = b.icmp_signed("==", following, columns)
            skipped = b.mul(below, I64(height - 1))
            afters = (
                b.add(z, b.zext(is_last, I64)), b.select(is_last, I64(0), following), b.select(is_last, b.add(base, slab), base),
                b.add(b.add(factor, I64(4)), b.select(is_last, skipped, I64(0))), *sums,
            )  # fmt: skip
            nothing = [constant(0.0)] * (parts - 1)
            firsts = (I64(0), I64(0), at, taps, *[start, *nothing] * rows)
            for phi, first, after in zip((z, x, base, factor, *carried), firsts, afters, strict=True):
                phi.add_incoming(first, before)
                phi.add_incoming(after, turn)
            b.cbranch(b.icmp_signed("<", afters[0], slabs), turn, ended)
            b.position_at_end(ended)
            whole = [sums[one * parts : (one + 1) * parts] for one in range(rows)]
            _emit_finish(b, [reduce(b.fadd, each) for each in whole], *a[6:11], *a[13:])
            return context.get_dummy_value()

        numbers = [types.int64] * 5
        return types.void(*numbers, vector, *numbers, *[types.int64] * 2, types.float32, types.float32), emit

    return tile


@intrinsic
def finish(_: Any, value: Any, to: Any, other: Any, count: Any, last: Any, low: Any, bound: Any) -> Any:
    """Store the sums of a vector of outputs, after the residual is added and the bounds are applied."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        _emit_finish(b, a[:1], a[1], I64(0), *a[2:])
        return context.get_dummy_value()

    return types.void(vector, *[types.int64] * 4, types.float32, types.float32), emit


def _emit_finish(
    b: Builder, sums: list[Value], to: Value, line: Value, other: Value, count: Value, last: Value, low: Value, bound: Value
) -> None:  # fmt: skip
    """Store ``count`` outputs of each row, or 16 up to the place ``last``."""
    lower, upper = splat(b, low), splat(b, bound)
    places = [b.add(to, b.mul(line, I64(number))) for number in range(len(sums))]
    below = [b.add(other, b.mul(line, I64(number))) for number in range(len(sums))]
    is_whole = b.or_(b.icmp_signed("==", count, I64(16)), b.icmp_signed("<=", places[-1], last))
    with b.if_else(is_whole) as (whole, part):
        with whole, b.if_else(b.icmp_signed("==", other, I64(0))) as (plain, added):
            with plain:
                for value, place in zip(sums, places, strict=True):
                    store(b, place, maximum(b, upper, value))
            with added:
                for value, place, residual in zip(sums, places, below, strict=True):
                    store(b, place, maximum(b, upper, b.fadd(maximum(b, lower, value), load(b, residual))))
        with part:
            mask = lanes_below(b, count)
            adds = b.icmp_signed("!=", other, I64(0))
            seen = b.and_(mask, splat(b, adds))
            for value, place, residual in zip(sums, places, below, strict=True):
                found = call(b, "llvm.masked.load.v16f32.p0", pointer(b, residual, VF), I32(4), seen, constant(0.0))
                value = b.select(adds, b.fadd(maximum(b, lower, value), found), value)
                value = maximum(b, upper, value)
                call(b, "llvm.masked.store.v16f32.p0", value, pointer(b, place, VF), I32(4), mask, result=ir.VoidType())
