"""Pool windows of row-major planes that move by two to four, without scratch memory.

The rows of a window are combined into as many vectors as the windows move by: columns whose numbers have the same remainder, of
the 16 windows that begin in them. What these see behind them are the same columns shifted, those of the next vectors among them.
So each element is loaded once for each row of windows that sees it. The geometry is the table of `pooling`. A work item is one
row of the destination.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import inlined, not_inlined
from .elements import elements
from .pooling import DIM, dimension, inside, make_slabs, next_row, row_of
from .pooling_columns import Columns, make_columns
from .vec import FUSES, dcount_inside, vadd, vcount_inside, vdiv, vfma, vmax, vmul, vneg


def make(isa: str, algorithm: str, dtype: str, window: int, stride: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel for ``max``, ``avg_include_padding`` or ``avg_exclude_padding`` on a data type, and its signature.

    A window has ``window`` columns, and moves by ``stride``, 2 to 4; it has 16 times as many columns at most.
    """
    takes_max, counts_padding = algorithm == "max", algorithm == "avg_include_padding"
    of = elements(dtype)
    start = -np.inf if takes_max else 0.0
    size, real, fill = of.size, of.real, of.fill
    store, store_part = of.store, of.store_part
    count_inside = vcount_inside if real is np.float32 else dcount_inside
    slabs = make_slabs(counts_padding)
    columns: Columns = make_columns(dtype, stride, window, takes_max)
    none, take, take_inside, hide, sort, along = (
        columns.none, columns.take, columns.take_inside, columns.hide, columns.sort, columns.along
    )  # fmt: skip
    #: Columns that are looked at together.
    reach = 16 * stride
    fuses, least = isa in FUSES, real(-np.finfo(real).max)

    @not_inlined
    def look_deep(at: int, behind: int, planes: int, down: int, rows: int, nothing: Any) -> Any:
        """Return what `look` does, by code of its own: its loops would be repeated in each caller's."""
        found = none(nothing)
        for _ in range(planes):
            line = at
            for _ in range(rows):
                found = take(found, line)
                line += down
            at += behind
        return found

    @inlined
    def look(at: int, behind: int, planes: int, down: int, rows: int, nothing: Any) -> Any:
        """Return the combinations of the rows' columns from an address on, all of which may be read."""
        # The most frequent window, written out.
        if rows == 3 and planes == 1:
            found = take(take(take(none(nothing), at), at + down), at + 2 * down)
        else:
            found = look_deep(at, behind, planes, down, rows, nothing)
        return found

    @not_inlined
    def look_inside(
        line: int, behind: int, planes: int, down: int, rows: int, index: int, width: int, nothing: Any
    ) -> Any:  # fmt: skip
        """Return what `look` does of the columns from ``index`` of a row on, ``nothing`` outside of the rows."""
        found = none(nothing)
        for _ in range(planes):
            at = line
            for _ in range(rows):
                found = take_inside(found, at, index, width, nothing)
                at += down
            line += behind
        return found

    @inlined
    def look_ahead(
        line: int, behind: int, planes: int, down: int, rows: int, index: int, whole: int, stop: int, width: int,
        nothing: Any,
    ) -> Any:  # fmt: skip
        """Return what `look_inside` does, sorted: any columns before ``whole`` may be read, and windows end before ``stop``."""
        found = none(nothing)
        if index < whole:
            found = sort(look(line + size * index, behind, planes, down, rows, nothing))
        elif index < stop:
            found = sort(look_inside(line, behind, planes, down, rows, index, width, nothing))
        return found

    @inlined
    def divisor(index: int, width: int, seen: int) -> Any:
        """Return what the sums of the windows from ``index`` on are divided by, of ``seen`` rows."""
        inside_of_row = fill(real(0.0))
        for column in range(index, index + window):
            inside_of_row = vadd(count_inside(column, stride, width), inside_of_row)
        return vmax(vmul(inside_of_row, fill(real(seen))), fill(real(1.0)))

    @inlined
    def divided(value: Any, divisor: Any, inverse: Any) -> Any:
        """Return a quotient, of products if that is as exact (Markstein); ``inverse`` is that of 1."""
        if fuses:
            # What this leaves of the value corrects the last bit; of infinities it leaves NaN, and any number keeps them.
            near = vmul(value, inverse)
            left = vmax(vfma(vneg(near), divisor, value), fill(least))
            found = vfma(left, inverse, near)
        else:
            found = vdiv(value, divisor)
        return found

    @not_inlined
    def strip(
        count: int, line: int, behind: int, planes: int, down: int, rows: int, below: int, target: int, last: int,
        width: int, out_width: int, left: int, whole: int, stop: int, seen: int,
    ) -> None:  # fmt: skip
        """Store ``count`` rows, whose windows see as many ``rows`` of as many ``planes``, the first from an address on.

        Those of the next row are ``below`` bytes behind it. This code is apart from that which finds its place: so it has all
        numbers that it needs in registers.
        """
        nothing, one = fill(real(start)), fill(real(1.0))
        final, inner = stride * (out_width - 1 & -16) - left, width + stride - window
        first_divisor, last_divisor, divisor_inside = one, one, one
        if not takes_max:
            divisor_inside = divisor(0, reach + window, seen)
            first_divisor, last_divisor = divisor_inside, divisor_inside
            if not counts_padding:
                first_divisor, last_divisor = divisor(-left, width, seen), divisor(final, width, seen)
        first_inverse, last_inverse, inverse_inside = (
            vdiv(one, first_divisor), vdiv(one, last_divisor), vdiv(one, divisor_inside)
        )  # fmt: skip
        for _ in range(count):
            index, to = -left, target
            here = none(nothing)
            if index < whole:
                here = sort(hide(look(line + size * index, behind, planes, down, rows, nothing), left, nothing))
            else:
                here = sort(look_inside(line, behind, planes, down, rows, index, width, nothing))
            while index < final:
                index += reach
                ahead = look_ahead(line, behind, planes, down, rows, index, whole, stop, width, nothing)
                value = along(here, ahead)
                if not takes_max:
                    if counts_padding or reach <= index <= inner:
                        value = divided(value, divisor_inside, inverse_inside)
                    elif index < reach:
                        value = divided(value, first_divisor, first_inverse)
                    else:
                        value = vdiv(value, divisor(index - reach, width, seen))
                store(to, value)
                to += 16 * size
                here = ahead
            ahead = look_ahead(line, behind, planes, down, rows, index + reach, whole, stop, width, nothing)
            value = along(here, ahead)
            if not takes_max:
                value = divided(value, last_divisor, last_inverse)
            # What is behind a row is stored later, unless it is another range's.
            if to <= last:
                store(to, value)
            else:
                store_part(to, value, (out_width - 1 & 15) + 1)
            line += below
            target += size * out_width

    def kernel(begin: int, end: int, src: int, dst: int, table: int) -> None:
        depth, out_depth, window_d, stride_d, step_d, left_d = dimension(table)
        height, out_height, window_h, stride_h, step_h, left_h = dimension(table + DIM)
        width, out_width, _, _, _, left_w = dimension(table + 2 * DIM)
        nothing = fill(real(start))
        down = size * width * step_h
        below = size * width * stride_h
        behind = size * width * height * step_d
        last = dst + size * (end * out_width - 16)
        stop = min(width, stride * (out_width - 1) - left_w + window)
        # If all windows end in their rows, what is behind a row does not matter: the planes of this range are read as one piece.
        whole, read, limit = width - reach + 1, 0, 0
        if stride * (out_width - 1) - left_w + window <= width:
            whole = stop
            read = size * ((stop + left_w - 1) // reach * reach + reach - left_w)
            last_channel, _, _ = row_of(end - 1, out_depth, out_height)
            limit = src + size * width * height * depth * (last_channel + 1)
        channel, out_d, out_h = row_of(begin, out_depth, out_height)
        item = begin
        while item < end:
            first_d = out_d * stride_d - left_d
            first_h = out_h * stride_h - left_h
            from_d, to_d = inside(first_d, step_d, window_d, depth)
            from_h, to_h = inside(first_h, step_h, window_h, height)
            planes, rows = to_d - from_d, to_h - from_h
            seen = rows * planes
            if counts_padding:
                seen = window_d * window_h
            seen *= slabs(table, out_d)
            plane = (channel * depth + first_d + from_d * step_d) * height + first_h + from_h * step_h
            line = src + size * width * plane
            target = dst + size * item * out_width
            # As many rows as see all of a window's rows are stored at once, unless these are read beyond the source.
            count = 1
            if rows == window_h:
                free = height - 1 - first_h - (window_h - 1) * step_h
                count = min(end - item, min(out_height - out_h, free // stride_h + 1))
            if line - size * left_w < src and left_w + whole > 0:
                count = 0
            last_read = line + (planes - 1) * behind + (rows - 1) * down + read
            while count > 0 and limit > 0 and last_read + (count - 1) * below > limit:
                count -= 1
            if count > 0:
                strip(
                    count, line, behind, planes, down, rows, below, target, last, width, out_width, left_w, whole, stop, seen
                )  # fmt: skip
            else:
                count = 1
                for w in range(0, out_width, 16):
                    index = stride * w - left_w
                    here = look_inside(line, behind, planes, down, rows, index, width, nothing)
                    ahead = look_inside(line, behind, planes, down, rows, index + reach, width, nothing)
                    value = along(sort(here), sort(ahead))
                    if counts_padding:
                        value = vdiv(value, fill(real(window * seen)))
                    elif not takes_max:
                        value = vdiv(value, divisor(index, width, seen))
                    store_part(target + size * w, value, min(16, out_width - w))
            item += count
            channel, out_d, out_h = next_row(channel, out_d, out_h + count - 1, out_depth, out_height)

    return kernel, types.void(*[types.int64] * 5)
