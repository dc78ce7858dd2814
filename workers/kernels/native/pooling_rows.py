"""Pool windows of row-major planes: the rows of a window into one row first, element by element, then along that row.

Each element of the source is loaded once for each row of windows that sees it, by whole vectors, instead of once for each
window. The row in between is on the stack, with margins in place of the padding, so that windows need no masks; wide rows take
it in pieces. The geometry is the table of `pooling`. A work item is one row of the destination.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .compiler import types
from .compiler.language import inlined
from .elements import elements
from .pooling import DIM, dimension, inside, make_see, make_slabs, next_row, row_of
from .stack_room import stack_room
from .vec import dcount_inside, vadd, vcount_inside, vdiv, veven, vmax, vmul, vodd

#: Elements of the row on the stack, and of its end that only lanes without a window reach.
ROOM: Final = 1024
SLACK: Final = 64


def make(isa: str, algorithm: str, dtype: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for ``max``, ``avg_include_padding`` or ``avg_exclude_padding`` on a data type, and its signature."""
    takes_max, counts_padding = algorithm == "max", algorithm == "avg_include_padding"
    of, row = elements(dtype), elements(dtype).lanes_as
    combine, start = (vmax, -np.inf) if takes_max else (vadd, 0.0)
    size, wide, real, fill = of.size, row.size, of.real, of.fill
    load, load_tail, store, store_part = of.load, of.load_tail, of.store, of.store_part
    load_row, store_row = row.load, row.store
    count_inside = vcount_inside if real is np.float32 else dcount_inside
    see, slabs = make_see("f32" if real is np.float32 else "f64"), make_slabs(counts_padding)
    room = stack_room(wide * (ROOM + SLACK))

    @inlined
    def combine_rows(source: int, down: int, rows: int, target: int, columns: int, first: int, nothing: Any) -> None:
        """Combine one to three rows into the row in between, or into what it has unless they are the ``first`` ones."""
        second = source + down * min(1, rows - 1)
        third = source + down * (rows - 1)
        for column in range(0, columns & -16, 16):
            at = size * column
            value = combine(load(source + at), nothing if first else load_row(target + wide * column))
            if rows > 1:
                value = combine(load(second + at), value)
            if rows > 2:
                value = combine(load(third + at), value)
            store_row(target + wide * column, value)
        if columns & 15:
            column, count = columns & -16, columns & 15
            at = size * column
            value = combine(load_tail(source + at, count), nothing if first else load_row(target + wide * column))
            if rows > 1:
                value = combine(load_tail(second + at, count), value)
            if rows > 2:
                value = combine(load_tail(third + at, count), value)
            store_row(target + wide * column, value)

    @inlined
    def along_row(line: int, window: int, stride: int, step: int, nothing: Any) -> Any:
        """Return 16 windows of the row in between."""
        value, other = nothing, nothing
        at, stop = line, line + wide * window * step
        if stride == 1:
            while at < stop:
                value = combine(load_row(at), value)
                at += wide * step
        elif stride == 2 and step == 1:
            while at + wide < stop:
                low, high = load_row(at), load_row(at + 16 * wide)
                value = combine(veven(low, high), value)
                other = combine(vodd(low, high), other)
                at += 2 * wide
            if at < stop:
                value = combine(veven(load_row(at), load_row(at + 16 * wide)), value)
        else:
            while at < stop:
                value = combine(see(at, 0, stride, ROOM, nothing), value)
                at += wide * step
        return combine(value, other)

    @inlined
    def apart(line: int, down: int, rows: int, window: int, nothing: Any) -> Any:
        """Return 16 windows that move by two, of rows of the source with all that the windows see."""
        value, other = nothing, nothing
        for column in range(line, line + size * window, 2 * size):
            low, high = nothing, nothing
            for at in range(column, column + rows * down, down):
                low = combine(load(at), low)
                high = combine(load(at + 16 * size), high)
            value = combine(veven(low, high), value)
            if column + size < line + size * window:
                other = combine(vodd(low, high), other)
        return combine(value, other)

    def kernel(begin: int, end: int, src: int, dst: int, table: int) -> None:
        depth, out_depth, window_d, stride_d, step_d, left_d = dimension(table)
        height, out_height, window_h, stride_h, step_h, left_h = dimension(table + DIM)
        width, out_width, window_w, stride_w, step_w, left_w = dimension(table + 2 * DIM)
        nothing = fill(real(start))
        between = room()
        span = (window_w - 1) * step_w + 1
        most = max(16, ((ROOM - span) // stride_w + 1) & -16)
        down = size * width * step_h
        # What 16 windows read: both vectors of each second column. It is in the row, whose memory may end with it.
        reach = 32 + (window_w - 1 & -2)
        channel, out_d, out_h = row_of(begin, out_depth, out_height)
        for item in range(begin, end):
            first_d = out_d * stride_d - left_d
            first_h = out_h * stride_h - left_h
            from_d, to_d = inside(first_d, step_d, window_d, depth)
            from_h, to_h = inside(first_h, step_h, window_h, height)
            rows = (to_d - from_d) * (to_h - from_h) * slabs(table, out_d)
            area = window_d * window_h * slabs(table, out_d)
            whole = fill(real(area * window_w if counts_padding else max(1, rows * window_w)))
            # The last 16 windows that read nothing behind the row; those beside them are computed one by one.
            last = (width + left_w - reach) // 2
            is_apart = stride_w == 2 and step_w == 1 and to_d - from_d == 1 and 2 * last >= left_w
            is_apart &= out_width >= last + 16
            begin_w = 0
            while begin_w < out_width:
                count_w = min(most, out_width - begin_w)
                left = begin_w * stride_w - left_w
                if is_apart:
                    is_alone = left < 0 or begin_w >= last + 16
                    if not is_alone:
                        begin_w = min(begin_w, last)
                        left = begin_w * 2 - left_w
                    plane = (channel * depth + first_d + from_d * step_d) * height + first_h
                    line = src + size * ((plane + from_h * step_h) * width + left)
                    place = dst + size * (item * out_width + begin_w)
                    if is_alone:
                        value = nothing
                        from_w, to_w = inside(left, 1, window_w, width)
                        for at in range(line, line + (to_h - from_h) * down, down):
                            for element in range(at + size * from_w, at + size * to_w, size):
                                value = combine(load_tail(element, 1), value)
                        if not takes_max:
                            seen = max(1, rows * (to_w - from_w))
                            value = vdiv(value, whole if counts_padding else fill(real(seen)))
                        store_part(place, value, 1)
                        begin_w += 1
                    else:
                        value = apart(line, down, to_h - from_h, window_w, nothing)
                        if not takes_max:
                            value = vdiv(value, whole)
                        store(place, value)
                        begin_w += 16
                    continue
                total = (count_w - 1) * stride_w + span
                low = max(left, 0)
                columns = max(0, min(left + total, width) - low)
                for at in range(between, between + wide * min(low - left, total), 16 * wide):
                    store_row(at, nothing)
                target = between + wide * (low - left)
                first = 1
                if columns:
                    for d in range(from_d, to_d):
                        plane = (channel * depth + first_d + d * step_d) * height + first_h
                        for h in range(from_h, to_h, 3):
                            source = src + size * ((plane + h * step_h) * width + low)
                            combine_rows(source, down, min(3, to_h - h), target, columns, first, nothing)
                            first = 0
                if first:
                    columns = 0
                for at in range(target + wide * columns, between + wide * total, 16 * wide):
                    store_row(at, nothing)
                for w in range(0, count_w, 16):
                    value = along_row(between + wide * w * stride_w, window_w, stride_w, step_w, nothing)
                    lanes = min(16, count_w - w)
                    if not takes_max:
                        first_w = left + w * stride_w
                        count = whole
                        if not counts_padding and (first_w < 0 or first_w + (lanes - 1) * stride_w + span > width):
                            count = fill(real(0.0))
                            for index in range(first_w, first_w + window_w * step_w, step_w):
                                count = vadd(count, count_inside(index, stride_w, width))
                            count = vmax(vmul(count, fill(real(rows))), fill(real(1.0)))
                        value = vdiv(value, count)
                    place = dst + size * (item * out_width + begin_w + w)
                    if lanes == 16:
                        store(place, value)
                    else:
                        store_part(place, value, lanes)
                begin_w += count_w
            channel, out_d, out_h = next_row(channel, out_d, out_h, out_depth, out_height)

    return kernel, types.void(*[types.int64] * 5)
