"""Convolution of row-major planes to few outputs a group: 16 neighbouring outputs of a row a vector.

Blocks of 16 channels compute 16 outputs where there are few. A work item is a band of rows of all outputs of a group, all
columns or a piece of them. The source of some inputs at once is copied to the stack with zeros in place of the padding, as for
planes of one input, see `conv_planes`. The sums so far are on the stack, too, until all inputs are summed.
A tile is some vectors of some rows of some outputs: they share loads and weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
import numpy as np

from .compiler import types
from .compiler.language import inlined, intrinsic
from .limits import ROOM
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
    lanes_below,
    load,
    maximum,
    pointer,
    splat,
    store,
    vset,
    vstore,
)  # fmt: skip


def make(
    isa: str,
    outputs: tuple[int, ...],
    rows: int,
    vectors: int,
    height: int,
    stride: tuple[int, int],
    dilation: int,
    phases: tuple[int, ...] = (),
) -> tuple[Callable[..., None], Any]:
    """Return the kernel for windows of ``height`` rows, ``dilation`` apart; tiles have ``rows`` of ``vectors``, or one row.

    A tile has as many outputs as ``outputs`` says: of the first parts of a group's, and of the others. Taps read all phases of
    a row, or ``phases`` alone.

    Arguments: addresses of src, weights (input, slab, column, row, output), bias (0: none), dst and residual (0: none); groups,
    inputs and outputs of one, inputs at once, the first parts; height and width of src and dst; bands of a plane and rows of
    one; pieces of a row and columns of one; columns of the window and their dilation; padding above and at the left; bytes of a
    phase, of a slab and of an input of the copy, and of the copy; slabs of src and dst, and window, stride, dilation and padding
    in slabs; the lower bounds before and after the residual is added.
    """
    down, right = stride
    wide = 16 * vectors
    copy_row = make_copy_row(right, phases or tuple(range(right)))
    is_seen = make_is_seen(height, dilation, down)
    # With AVX-512, masked loads take the time of others.
    frames = isa != "x86-64-v4" and right <= 2
    copy_columns = make_copy_columns(right)
    room_on_stack = stack_room(ROOM)
    many, less = outputs[0], outputs[-1]
    first_parts = _make_part(many, rows, vectors, height, stride, dilation)
    other_parts = _make_part(less, rows, vectors, height, stride, dilation)
    two = many != less

    def few_outputs(
        begin: int, end: int, src: int, weights: int, bias: int, dst: int, residual: int, groups: int, inputs: int,
        results: int, chunk: int, parts: int, height_in: int, width: int, out_height: int, out_width: int, bands: int,
        band: int, pieces: int, piece: int, window_w: int, reach_x: int, top: int, left: int, phase: int, slab: int,
        plane: int, copied: int, depth: int, out_depth: int, window_d: int, stride_d: int, reach_d: int, front: int,
        low: float, bound: float,
    ) -> None:  # fmt: skip
        lower, upper = np.float32(low), np.float32(bound)
        copy = room_on_stack()
        row, line = right * phase, 4 * out_width
        below, kept = 4 * out_depth * out_height * out_width, 4 * band * piece
        factor_row = 4 * groups * results
        taps = window_d * height * window_w * factor_row
        nothing = vset(np.float32(0.0))
        framed = False
        inner = min(width, right * ((out_width + wide - 1) // wide * wide + (window_w - 1) * reach_x // right) - left)
        if frames:
            # One piece is a row: the padding at its ends is in the same places of each copy.
            framed = pieces == 1 and inner > 0 and end_of_copy(left, inner, right) * 4 <= phase
            if framed:
                for zeros in range(copy, copy + copied, 64):
                    vstore(zeros, nothing)
        for item in range(begin, end):
            rest = item // pieces
            first_column = (item - rest * pieces) * piece
            number = rest // bands
            first_row = (rest - number * bands) * band
            image = number // out_depth
            d = number - image * out_depth
            group = image % groups
            lines = min(band, out_height - first_row)
            columns = min(piece, out_width - first_column)
            y, x = first_row * down - top, first_column * right - left
            seen = (columns + wide - 1) // wide * wide + (window_w - 1) * reach_x // right
            place = image * results * below + 4 * ((d * out_height + first_row) * out_width + first_column)
            first = 0
            while first < inputs:
                count = min(chunk, inputs - first)
                for taken in range(count):
                    for number_d in range(window_d):
                        z = d * stride_d - front + number_d * reach_d
                        source = src + 4 * ((image * inputs + first + taken) * depth + z) * height_in * width
                        seen_rows = height_in if 0 <= z < depth else 0
                        for number_y in range((lines - 1) * down + (height - 1) * dilation + 1):
                            if is_seen(number_y) == 0:
                                continue
                            to = copy + taken * plane + number_d * slab + number_y * row
                            if not framed:
                                inside = width if 0 <= y + number_y < seen_rows else 0
                                copy_row(source + 4 * (y + number_y) * inside, x, inside, to, phase, seen)
                            elif 0 <= y + number_y < seen_rows:
                                copy_columns(source + 4 * (y + number_y) * width, left, inner, to, phase)
                            else:
                                for zeros in range(to, to + row, 64):
                                    vstore(zeros, nothing)
                is_last = first + count == inputs
                done, part = 0, 0
                while done < results:
                    output = group * results + done
                    own, start = weights + 4 * output + first * taps, bias + 4 * output if bias != 0 else 0
                    sums, to, other = copy + copied + done * kept, place + done * below, 0
                    if residual != 0:
                        other = residual + to
                    if not two or part < parts:
                        first_parts(copy, row, phase, slab, plane, count, window_d, window_w, reach_x, own, factor_row, start,
                                    first, is_last, sums, 4 * piece, kept, dst + to, line, below, other, lines, columns,
                                    lower, upper)  # fmt: skip
                        done += many
                    else:
                        other_parts(copy, row, phase, slab, plane, count, window_d, window_w, reach_x, own, factor_row, start,
                                    first, is_last, sums, 4 * piece, kept, dst + to, line, below, other, lines, columns,
                                    lower, upper)  # fmt: skip
                        done += less
                    part += 1
                first += count

    return few_outputs, types.void(*[types.int64] * 34, types.float64, types.float64)


def _make_part(outputs: int, rows: int, vectors: int, height: int, stride: tuple[int, int], dilation: int) -> Any:
    """Return the function that adds the products of some inputs to some outputs of an item, in tiles of rows or one row."""
    many, one = (_make_tile(outputs, count, vectors, height, stride, dilation) for count in (rows, 1))
    down, wide = stride[0], 16 * vectors

    @inlined
    def part(
        copy: int, row: int, phase: int, slab: int, plane: int, inputs: int, window_d: int, window_w: int, reach_x: int,
        weights: int, factor_row: int, bias: int, first: int, is_last: bool, kept: int, kept_line: int, kept_below: int, to: int,
        line: int, below: int, other: int, lines: int, columns: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        done = 0
        while done < lines:
            at, sums, place, beside = copy + done * down * row, kept + done * kept_line, to + done * line, 0
            if other != 0:
                beside = other + done * line
            count = columns
            while count > 0:
                if rows == 1 or done + rows <= lines:
                    many(at, row, phase, slab, plane, inputs, window_d, window_w, reach_x, weights, factor_row, bias, first,
                         is_last, sums, kept_line, kept_below, place, line, below, beside, count, low, bound)  # fmt: skip
                else:
                    one(at, row, phase, slab, plane, inputs, window_d, window_w, reach_x, weights, factor_row, bias, first,
                        is_last, sums, kept_line, kept_below, place, line, below, beside, count, low, bound)  # fmt: skip
                at += 4 * wide
                sums += 4 * wide
                place += 4 * wide
                if other != 0:
                    beside += 4 * wide
                count -= wide
            done += rows if done + rows <= lines else 1

    return part


def _make_tile(outputs: int, rows: int, vectors: int, height: int, stride: tuple[int, int], dilation: int) -> Any:
    """Return the function that computes a tile of some outputs, rows and vectors."""
    size, (down, right) = outputs * rows * vectors, stride
    bundle = types.Type(f"{size} sums", ir.LiteralStructType([VF] * size))
    lines = sorted({one * down + y * dilation for one in range(rows) for y in range(height)})

    def whole(b: Builder, values: list[Value]) -> Value:
        found = ir.Constant(bundle.lowered, ir.Undefined)
        for number, value in enumerate(values):
            found = b.insert_value(found, value, number)
        return found

    def scalar(b: Builder, address: Value) -> Value:
        return splat(b, b.load(pointer(b, address, F32), align=4))

    def places(b: Builder, at: Value, line: Value, below: Value) -> list[Value]:
        """Return the addresses of all vectors, output by output and row by row."""
        return [
            b.add(at, b.add(b.add(b.mul(below, I64(output)), b.mul(line, I64(row))), I64(64 * vector)))
            for output in range(outputs)
            for row in range(rows)
            for vector in range(vectors)
        ]

    @intrinsic
    def none(_: Any) -> Any:
        return bundle(), lambda context, b, sig, a: whole(b, [constant(0.0)] * size)

    @intrinsic
    def biased(_: Any, biases: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            starts = [scalar(b, b.add(a[0], I64(4 * output))) for output in range(outputs)]
            return whole(b, [start for start in starts for _ in range(rows * vectors)])

        return bundle(types.int64), emit

    @intrinsic
    def so_far(_: Any, at: Any, line: Any, below: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return whole(b, [load(b, place) for place in places(b, *a)])

        return bundle(*[types.int64] * 3), emit

    @intrinsic
    def keep(_: Any, sums: Any, at: Any, line: Any, below: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            for number, place in enumerate(places(b, *a[1:])):
                store(b, place, b.extract_value(a[0], number))
            return context.get_dummy_value()

        return types.void(bundle, *[types.int64] * 3), emit

    @intrinsic
    def take(_: Any, sums: Any, at: Any, row: Any, factor: Any, below: Any) -> Any:
        """Add the products of a column of the window: each vector of the source is loaded once for all rows and outputs."""

        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            sums, at, row, factor, below = a
            values, factors = [b.extract_value(sums, number) for number in range(size)], dict[tuple[int, int], Value]()
            for line in lines:
                found = [load(b, b.add(at, b.add(b.mul(row, I64(line)), I64(64 * v)))) for v in range(vectors)]
                for one in range(rows):
                    y, between = divmod(line - one * down, dilation)
                    if between or not 0 <= y < height:
                        continue
                    for output in range(outputs):
                        if (output, y) not in factors:
                            # As late as possible: registers hold the factors of few rows.
                            place = b.add(factor, b.add(b.mul(below, I64(y)), I64(4 * output)))
                            factors[output, y] = scalar(b, place)
                        for vector, seen in enumerate(found):
                            number = (output * rows + one) * vectors + vector
                            values[number] = fma(b, seen, factors[output, y], values[number])
            return whole(b, values)

        return bundle(bundle, *[types.int64] * 4), emit

    @intrinsic
    def finish(
        _: Any, sums: Any, to: Any, line: Any, below: Any, other: Any, count: Any, low: Any, bound: Any
    ) -> Any:  # fmt: skip
        """Store ``count`` columns of the sums, after the residual is added and the bounds are applied."""

        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            sums, to, line, below, other, count, low, bound = a
            values = [b.extract_value(sums, number) for number in range(size)]
            lower, upper = splat(b, low), splat(b, bound)
            ends, others = places(b, to, line, below), places(b, other, line, below)
            adds = b.icmp_signed("!=", other, I64(0))
            with b.if_else(b.icmp_signed(">=", count, I64(16 * vectors))) as (all_of, some):
                with all_of, b.if_else(adds) as (added, plain):
                    with added:
                        for value, place, residual in zip(values, ends, others, strict=True):
                            value = b.fadd(maximum(b, lower, value), load(b, residual))
                            store(b, place, maximum(b, upper, value))
                    with plain:
                        for value, place in zip(values, ends, strict=True):
                            store(b, place, maximum(b, upper, value))
                with some:
                    masks = [lanes_below(b, b.sub(count, I64(16 * vector))) for vector in range(vectors)]
                    for number, (value, place, residual) in enumerate(zip(values, ends, others, strict=True)):
                        mask = masks[number % vectors]
                        reads = b.and_(mask, splat(b, adds))
                        found = call(
                            b, "llvm.masked.load.v16f32.p0", pointer(b, residual, VF), I32(4), reads, constant(0.0)
                        )
                        value = b.select(adds, b.fadd(maximum(b, lower, value), found), value)
                        value = maximum(b, upper, value)
                        where = pointer(b, place, VF)
                        call(b, "llvm.masked.store.v16f32.p0", value, where, I32(4), mask, result=ir.VoidType())
            return context.get_dummy_value()

        return types.void(bundle, *[types.int64] * 5, types.float32, types.float32), emit

    @inlined
    def tile(
        at: int, row: int, phase: int, slab: int, plane: int, inputs: int, window_d: int, window_w: int, reach_x: int,
        weights: int, factor_row: int, bias: int, first: int, is_last: bool, kept: int, kept_line: int, kept_below: int, to: int,
        line: int, below: int, other: int, count: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        sums = none()
        if first > 0:
            sums = so_far(kept, kept_line, kept_below)
        elif bias != 0:
            sums = biased(bias)
        factor, source = weights, at
        for _ in range(inputs):
            here = source
            for _ in range(window_d):
                for x in range(window_w):
                    place = here + x * reach_x // right * 4 + x * reach_x % right * phase
                    sums = take(sums, place, row, factor, factor_row)
                    factor += height * factor_row
                here += slab
            source += plane
        if is_last:
            finish(sums, to, line, below, other, count, low, bound)
        else:
            keep(sums, kept, kept_line, kept_below)

    return tile
