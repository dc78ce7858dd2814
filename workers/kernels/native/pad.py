"""Copy a tensor to its place among elements that are added around it, or cut it.

The innermost dimension has units of bytes, in lines of the one outside of it. An item is some units of some lines. The table
has the other dimensions, innermost first, as (size in dst, bytes from index to index in dst and in src, elements added
before, elements kept). src begins at the first element that is kept, and the last one ends behind ``span`` bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .bits import copy_bytes, fill_32, fill_bytes, make_load, make_reverse, make_store, move_32
from .compiler import types
from .compiler.language import inlined
from .padded_index import padded_index
from .past_caches import finish_streams, stream_bytes
from .vec import iload

#: Units of a margin that are stored one by one.
_FEW: Final = 8
#: Fewer units of 4 bytes than these are not looked at as a run.
_SHORT: Final = 8
#: Bytes of one store that fills a margin; what it writes beyond is written again.
_FILLED: Final = 32


def make(isa: str, streams: bool = False) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature. ``pattern`` has eight bytes of constant elements; see `padded_index` for modes.

    Long runs that it ``streams`` are written past the caches: see `past_caches`.
    """
    copy_run: Any = stream_bytes if streams else copy_bytes
    load_1, load_2, load_4, load_8 = make_load(1), make_load(2), make_load(4), make_load(8)
    store_1, store_2, store_4, store_8 = make_store(1), make_store(2), make_store(4), make_store(8)
    reverse_1, reverse_2, reverse_4, reverse_8 = make_reverse(1), make_reverse(2), make_reverse(4), make_reverse(8)

    @inlined
    def repeated(address: int, unit: int) -> int:
        """Return an element of 1, 2, 4 or 8 bytes as often as eight bytes have it."""
        if unit == 4:
            bits = load_4(address)
            return bits | bits << 32
        if unit == 8:
            return load_8(address)
        if unit == 2:
            return load_2(address) * 0x0001000100010001
        return load_1(address) * 0x0101010101010101

    @inlined
    def reverse(target: int, source: int, unit: int) -> None:
        """Copy elements of 1, 2, 4 or 8 bytes, 32 bytes in all, the last one first."""
        if unit == 4:
            reverse_4(target, source)
        elif unit == 8:
            reverse_8(target, source)
        elif unit == 2:
            reverse_2(target, source)
        else:
            reverse_1(target, source)

    @inlined
    def margin(
        first: int, last: int, read: int, written: int, before: int, kept: int, unit: int, mode: int, pattern: int
    ) -> None:
        """Write the units beside those that are kept, before them or behind them; those of few bytes take few branches."""
        if mode == 0:
            if unit == 4 and last - first < _FEW:
                for at in range(first, last):
                    store_4(written + 4 * at, pattern)
            else:
                fill_bytes(written + first * unit, pattern, (last - first) * unit)
        elif unit == 4 and last - first < _SHORT:
            for at in range(first, last):
                store_4(written + 4 * at, load_4(read + 4 * padded_index(mode, at - before, kept)))
        elif first < last:
            # What narrow margins repeat is one run of units: the same one, or backwards, or forwards.
            step = 0
            is_run = mode == 1
            if mode == 2:
                step = -unit
                is_run = -kept < first - before and last - before < 2 * kept
            elif mode == 3:
                step = unit
                is_run = -kept <= first - before and last - before <= 2 * kept
            if is_run and unit <= 8 and unit & (unit - 1) == 0:
                place = read + unit * padded_index(mode, first - before, kept)
                to, stop = written + unit * first, written + unit * last
                if unit == 1:
                    while to < stop:
                        store_1(to, load_1(place))
                        to += 1
                        place += step
                elif unit == 2:
                    while to < stop:
                        store_2(to, load_2(place))
                        to += 2
                        place += step
                elif unit == 4:
                    while to < stop:
                        store_4(to, load_4(place))
                        to += 4
                        place += step
                else:
                    while to < stop:
                        store_8(to, load_8(place))
                        to += 8
                        place += step
            else:
                for at in range(first, last):
                    copy_bytes(written + at * unit, read + padded_index(mode, at - before, kept) * unit, unit)

    def kernel(
        begin: int, end: int, src: int, dst: int, table: int, dims: int, lines: int, group: int, line_dst: int, line_src: int,
        line_before: int, line_kept: int, size: int, chunk: int, dst_step: int, src_step: int, before: int, kept: int,
        unit: int, mode: int, pattern: int, span: int,
    ) -> None:  # fmt: skip
        pieces = (size + chunk - 1) // chunk
        groups = (lines + group - 1) // group
        adjacent = dst_step == unit and src_step == unit
        # Lines of elements with narrow margins: two stores write both, the second none of the first margin. What is read for
        # those that are no single number may lie beside the line.
        after = (size - before - kept) * unit
        narrow = (
            adjacent and unit <= 8 and unit & (unit - 1) == 0 and chunk == size
            and before * unit <= min(_FILLED, size * unit - _FILLED) and 0 <= after <= _FILLED and kept > 0
            and (mode < 2 or max(before, size - before - kept) < kept)
        )  # fmt: skip
        first_read, last_read = src, src + span
        if mode >= 2:
            first_read += _FILLED
            last_read -= _FILLED + kept * unit
        for item in range(begin, end):
            rest = item // pieces
            first = (item - rest * pieces) * chunk
            last = min(size, first + chunk)
            outer = rest // groups
            start = (rest - outer * groups) * group
            source, target, inside = src, dst, True
            for dim in range(dims):
                place = table + 40 * dim
                extent = iload(place)
                left = outer // extent
                position = outer - left * extent
                outer = left
                index = padded_index(mode, position - iload(place + 24), iload(place + 32))
                inside &= index >= 0
                target += position * iload(place + 8)
                source += index * iload(place + 16)
            end_line = min(lines, start + group)
            if not inside and chunk == size and dst_step == unit and line_dst == size * unit:
                fill_bytes(target + start * line_dst, pattern, (end_line - start) * line_dst)
                continue
            for line in range(start, end_line):
                index = padded_index(mode, line - line_before, line_kept)
                filled = not inside or index < 0
                read, written = source + index * line_src, target + line * line_dst
                if filled and dst_step == unit:
                    fill_bytes(written + first * unit, pattern, (last - first) * unit)
                elif narrow and not filled and first_read <= read <= last_read:
                    end = written + size * unit - _FILLED
                    if mode == 2:
                        reverse(written, read + (before + 1) * unit - _FILLED, unit)
                        reverse(end, read + (kept - 1) * unit - after, unit)
                    elif mode == 3:
                        move_32(written, read + (kept - before) * unit)
                        move_32(end, read + after - _FILLED)
                    else:
                        left, right = pattern, pattern
                        if mode == 1:
                            left, right = repeated(read, unit), repeated(read + (kept - 1) * unit, unit)
                        fill_32(written, left)
                        fill_32(end, right)
                    copy_bytes(written + before * unit, read, kept * unit)
                elif adjacent and not filled:
                    start_kept, end_kept = max(first, min(last, before)), max(first, min(last, before + kept))
                    margin(first, start_kept, read, written, before, kept, unit, mode, pattern)
                    if end_kept > start_kept:
                        own = (start_kept - before) * unit
                        copy_run(written + start_kept * unit, read + own, (end_kept - start_kept) * unit)
                    margin(end_kept, last, read, written, before, kept, unit, mode, pattern)
                else:
                    for at in range(first, last):
                        place = padded_index(mode, at - before, kept)
                        if filled or place < 0:
                            fill_bytes(written + at * dst_step, pattern, unit)
                        else:
                            copy_bytes(written + at * dst_step, read + place * src_step, unit)
        if streams:
            finish_streams()

    return kernel, types.void(*[types.int64] * 22)
