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
    none, take, take_inside, hide, join, sort, along = (
        columns.none, columns.take, columns.take_inside, columns.hide, columns.join, columns.sort, columns.along
    )  # fmt: skip
    #: Columns that are looked at together; whether windows see those of the next ones.
    reach, overlaps = 16 * stride, window > stride
    fuses, least = isa in FUSES, real(-np.finfo(real).max)

    @inlined
    def look_down(at: int, down: int, rows: int, nothing: Any) -> Any:
        """Return the combinations of the rows' columns from an address on, all of which may be read."""
        found = none(nothing)
        # The most frequent number, written out.
        if rows == 3:
            found = take(take(take(found, at), at + down), at + 2 * down)
        else:
            for _ in range(rows):
                found = take(found, at)
                at += down
        return found

    @inlined
    def look_inside(line: int, down: int, rows: int, index: int, width: int, nothing: Any) -> Any:
        """Return the combinations of the rows' columns from ``index`` on, ``nothing`` outside of the rows."""
        found = none(nothing)
        for _ in range(rows):
            found = take_inside(found, line, index, width, nothing)
            line += down
        return found

    @inlined
    def look(
        line: int, down: int, rows: int, index: int, width: int, origin: int, limit: int, nothing: Any
    ) -> Any:  # fmt: skip
        """Return the combinations of the rows' columns from ``index`` on, ``nothing`` outside of the rows.

        Columns that no window sees may be others, which are read up to the address ``limit``, and from ``origin`` on.
        """
        ends_inside = index + reach <= width or line + (rows - 1) * down + size * (index + reach) <= limit
        if index > -16 and line + size * index >= origin and ends_inside:
            found = look_down(line + size * index, down, rows, nothing)
            if index < 0:
                found = hide(found, -index, nothing)
        else:
            found = look_inside(line, down, rows, index, width, nothing)
        return sort(found)

    @inlined
    def look_deep(
        line: int, behind: int, planes: int, down: int, rows: int, index: int, width: int, origin: int, limit: int,
        nothing: Any,
    ) -> Any:  # fmt: skip
        """Return what `look` does, of the rows of some planes."""
        found = look(line, down, rows, index, width, origin, limit, nothing)
        for number in range(1, planes):
            found = join(look(line + number * behind, down, rows, index, width, origin, limit, nothing), found)
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

    @inlined
    def look_ahead(at: int, down: int, rows: int, index: int, whole: int, stop: int, width: int, nothing: Any) -> Any:
        """Return the sorted columns at an address, ``index`` in the row: before ``whole`` all of them may be read."""
        found = none(nothing)
        if index < whole:
            found = sort(look_down(at, down, rows, nothing))
        elif index < stop:
            found = sort(look_inside(at - size * index, down, rows, index, width, nothing))
        return found

    @not_inlined
    def strip(
        count: int, at: int, down: int, below: int, rows: int, target: int, last: int, width: int, out_width: int,
        left: int, whole: int, stop: int, seen: int,
    ) -> None:  # fmt: skip
        """Store ``count`` rows of more than 16 windows, which see as many ``rows`` of one plane.

        The first window begins at an address, and those of the next row ``below`` bytes behind it. Code of its own has its
        numbers in registers.
        """
        nothing, one = fill(real(start)), fill(real(1.0))
        final = stride * (out_width - 1 & -16) - left
        divisor_inside = divisor(0, reach + window, seen)
        first_divisor, last_divisor = divisor_inside, divisor_inside
        if not counts_padding and not takes_max:
            first_divisor, last_divisor = divisor(-left, width, seen), divisor(final, width, seen)
        inverse_inside, first_inverse, last_inverse = (
            vdiv(one, divisor_inside), vdiv(one, first_divisor), vdiv(one, last_divisor)
        )  # fmt: skip
        for _ in range(count):
            line, to = at, target
            here = sort(hide(look_down(line, down, rows, nothing), left, nothing))
            index = reach - left
            line += size * reach
            ahead = look_ahead(line, down, rows, index, whole, stop, width, nothing)
            value = along(here, ahead)
            if not takes_max:
                value = divided(value, first_divisor, first_inverse)
            store(to, value)
            while index < final:
                here = ahead
                index += reach
                line += size * reach
                to += 16 * size
                ahead = look_ahead(line, down, rows, index, whole, stop, width, nothing)
                value = along(here, ahead)
                if not takes_max:
                    value = divided(value, divisor_inside, inverse_inside)
                store(to, value)
            here = ahead
            to += 16 * size
            ahead = look_ahead(line + size * reach, down, rows, index + reach, whole, stop, width, nothing)
            value = along(here, ahead)
            if not takes_max:
                value = divided(value, last_divisor, last_inverse)
            if to <= last:
                store(to, value)
            else:
                store_part(to, value, (out_width - 1 & 15) + 1)
            at += below
            target += size * out_width

    def kernel(begin: int, end: int, src: int, dst: int, table: int) -> None:
        depth, out_depth, window_d, stride_d, step_d, left_d = dimension(table)
        height, out_height, window_h, stride_h, step_h, left_h = dimension(table + DIM)
        width, out_width, _, _, _, left_w = dimension(table + 2 * DIM)
        nothing = fill(real(start))
        down = size * width * step_h
        below = size * width * stride_h
        behind = size * width * height * step_d
        final = stride * (out_width - 1 & -16) - left_w
        stop = width
        if not overlaps:
            stop = min(width, stride * out_width - left_w)
        # If all windows end in their rows, what is behind a row does not matter: the planes of this range are read as one piece.
        limit = 0
        if stride * (out_width - 1) - left_w + window <= width:
            last_channel, _, _ = row_of(end - 1, out_depth, out_height)
            limit = src + size * width * height * depth * (last_channel + 1)
        # Of rows of more than one vector, those between the first and the last have windows that are inside of the source.
        seen_to = min(width, stride * (out_width - 1) - left_w + window)
        whole = width - reach + 1
        read_to = 0
        if limit > 0:
            whole = seen_to
            read_to = size * ((seen_to + left_w - 1) // reach * reach + reach - left_w)
        are_strips = out_width > 16 and (takes_max or counts_padding or final - stride + window <= width)
        known = -1
        first_divisor, divisor_inside, first_inverse, inverse_inside = nothing, nothing, nothing, nothing
        one = fill(real(1.0))
        channel, out_d, out_h = row_of(begin, out_depth, out_height)
        item = begin
        while item < end:
            first_d = out_d * stride_d - left_d
            first_h = out_h * stride_h - left_h
            from_d, to_d = inside(first_d, step_d, window_d, depth)
            from_h, to_h = inside(first_h, step_h, window_h, height)
            rows = to_h - from_h if to_d > from_d else 0
            seen = rows * (to_d - from_d)
            if counts_padding:
                seen = window_d * window_h
            seen *= slabs(table, out_d)
            plane = (channel * depth + first_d + from_d * step_d) * height + first_h + from_h * step_h
            line = src + size * width * plane
            target = dst + size * item * out_width
            # What is behind a row is stored later, unless it is another range's.
            last = dst + size * (end * out_width - 16)
            # As many rows as see as many of the plane's are stored at once.
            count = 0
            if are_strips and to_d - from_d == 1 and line - size * left_w >= src:
                count = 1
                if rows == window_h:
                    free = height - 1 - first_h - (window_h - 1) * step_h
                    count = min(end - item, min(out_height - out_h, free // stride_h + 1))
                read = line + (rows - 1) * down + read_to
                while count > 0 and limit > 0 and read + (count - 1) * below > limit:
                    count -= 1
            if count > 0:
                strip(
                    count, line - size * left_w, down, below, rows, target, last, width, out_width, left_w, whole,
                    seen_to, seen,
                )  # fmt: skip
            else:
                count = 1
                if not takes_max and seen != known:
                    known = seen
                    divisor_inside = divisor(0, reach + window, seen)
                    inverse_inside = vdiv(one, divisor_inside)
                    if not counts_padding:
                        first_divisor = divisor(-left_w, width, seen)
                        first_inverse = vdiv(one, first_divisor)
                index = -left_w
                ahead = look_deep(line, behind, to_d - from_d, down, rows, index, width, src, limit, nothing)
                for w in range(0, out_width, 16):
                    here = ahead
                    ahead = none(nothing)
                    if index + reach < stop:
                        ahead = look_deep(
                            line, behind, to_d - from_d, down, rows, index + reach, width, src, limit, nothing
                        )
                    value = along(here, ahead)
                    if not takes_max:
                        if counts_padding or (index >= 0 and index + 15 * stride + window <= width):
                            value = divided(value, divisor_inside, inverse_inside)
                        elif w == 0:
                            value = divided(value, first_divisor, first_inverse)
                        else:
                            value = vdiv(value, divisor(index, width, seen))
                    if w + 16 <= out_width or target <= last:
                        store(target, value)
                    else:
                        store_part(target, value, out_width - w)
                    index += reach
                    target += 16 * size
            item += count
            channel, out_d, out_h = next_row(channel, out_d, out_h + count - 1, out_depth, out_height)

    return kernel, types.void(*[types.int64] * 5)
