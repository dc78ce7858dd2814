"""The sums of the elements up to each one along an axis: by vectors of adjacent rows, or along an axis of adjacent elements.

The table has the outer loops, innermost first, as (extent, bytes from step to step in src and dst). An item is ``chunk`` steps
of the inner loop. The sums of adjacent rows are in eight bytes each of the scratchpad; those of neighbouring items are added up
together, from longer pieces of each row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .bits import zero_bytes
from .compiler import types
from .running_sum import LANES, WIDE_LANES, make_rows, make_scan, make_sums
from .vec import iload

#: Elements of a row that are added in one visit; more streams would not be fetched ahead.
ROWS_AT_ONCE: Final = 4
#: Sums side by side at most: they stay in the first-level cache.
_SUMS: Final = 1024


def make(isa: str, kind: str, exclusive: bool, form: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature.

    The ``form`` is ``rows`` if the elements of the inner loop are adjacent, ``forward`` or ``backward`` if those along the
    axis are, in this order, and else ``apart``.
    """
    size = int(kind[1:]) // 8
    open_sums, close_sums, add = make_rows(kind, exclusive)
    open_8, _, add_8 = make_rows(kind, exclusive, 8)
    open_4, _, add_4 = make_rows(kind, exclusive, 4)
    sums = make_sums(kind)
    load, store, zero = sums.load, sums.store, sums.zero
    vectors, scan, first_lane = make_scan(kind, exclusive, form == "backward")
    rows, along = form == "rows", form in ("forward", "backward") and kind != "f64"
    # A vector's lowest address, of elements that are taken in order.
    lowest = (LANES - 1) * size if form == "backward" else 0

    def kernel(
        begin: int, end: int, src: int, dst: int, table: int, scratch: int, loops: int, count: int, chunk: int,
        src_step: int, dst_step: int, length: int, src_next: int, dst_next: int,
    ) -> None:  # fmt: skip
        pieces = (count + chunk - 1) // chunk
        item = begin
        while item < end:
            outer = item // pieces
            piece = item - outer * pieces
            start = piece * chunk
            together = 1
            if rows:
                together = max(1, min(end - item, pieces - piece, _SUMS // chunk))
            source = src + start * src_step
            target = dst + start * dst_step
            for loop in range(loops):
                extent = iload(table + 24 * loop)
                left = outer // extent
                position = outer - left * extent
                outer = left
                source += position * iload(table + 24 * loop + 8)
                target += position * iload(table + 24 * loop + 16)
            steps, whole = min(together * chunk, count - start), 0
            if rows:
                totals = scratch + 8 * chunk * item
                zero_bytes(totals, 8 * steps)
                whole = steps // WIDE_LANES * WIDE_LANES
                # Several elements of each row at once: sums are loaded and stored less often.
                index = 0
                while index + ROWS_AT_ONCE <= length:
                    place, to = source + index * src_next, target + index * dst_next
                    for at in range(0, whole, WIDE_LANES):
                        row = open_sums(totals + 8 * at)
                        p, q = place + at * size, to + at * size
                        for _ in range(ROWS_AT_ONCE):
                            row = add(row, p, q)
                            p += src_next
                            q += dst_next
                        close_sums(totals + 8 * at, row)
                    index += ROWS_AT_ONCE
                while index < length:
                    place, to = source + index * src_next, target + index * dst_next
                    for at in range(0, whole, WIDE_LANES):
                        close_sums(totals + 8 * at, add(open_sums(totals + 8 * at), place + at * size, to + at * size))
                    index += 1
                # The sums of fewer rows stay in a register.
                if whole + 8 <= steps:
                    place, to, eight = source + whole * size, target + whole * size, open_8(totals + 8 * whole)
                    for _ in range(length):
                        eight = add_8(eight, place, to)
                        place += src_next
                        to += dst_next
                    whole += 8
                if whole + 4 <= steps:
                    place, to, four = source + whole * size, target + whole * size, open_4(totals + 8 * whole)
                    for _ in range(length):
                        four = add_4(four, place, to)
                        place += src_next
                        to += dst_next
                    whole += 4
            for step in range(whole, steps):
                place, to = source + step * src_step, target + step * dst_step
                begun, total = 0, zero()
                if along:
                    carried = vectors()
                    while begun + LANES <= length:
                        carried = scan(carried, place + begun * src_next - lowest, to + begun * dst_next - lowest)
                        begun += LANES
                    total = first_lane(carried)
                for index in range(begun, length):
                    before = total
                    total += load(place + index * src_next)
                    store(to + index * dst_next, before if exclusive else total)
            item += together

    return kernel, types.void(*[types.int64] * 14)
