"""Copy a tensor to its place among elements that are added around it, or cut it.

The innermost dimension has units of bytes, in lines of the one outside of it. An item is some units of some lines. The table
has the other dimensions, innermost first, as (size in dst, bytes from index to index in dst and in src, elements added
before, elements kept). src begins at the first element that is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .bits import copy_bytes, fill_bytes
from .compiler import types
from .padded_index import padded_index
from .vec import iload


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature. ``pattern`` has eight bytes of constant elements; see `padded_index` for modes."""

    def kernel(
        begin: int, end: int, src: int, dst: int, table: int, dims: int, lines: int, group: int, line_dst: int, line_src: int,
        line_before: int, line_kept: int, size: int, chunk: int, dst_step: int, src_step: int, before: int, kept: int,
        unit: int, mode: int, pattern: int,
    ) -> None:  # fmt: skip
        pieces = (size + chunk - 1) // chunk
        groups = (lines + group - 1) // group
        adjacent = dst_step == unit and src_step == unit
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
            for line in range(start, min(lines, start + group)):
                index = padded_index(mode, line - line_before, line_kept)
                filled = not inside or index < 0
                read, written = source + index * line_src, target + line * line_dst
                at = first
                if filled and dst_step == unit:
                    fill_bytes(written + at * unit, pattern, (last - at) * unit)
                    at = last
                while at < last:
                    to, own = written + at * dst_step, at - before
                    if adjacent and not filled and 0 <= own < kept:
                        count = min(last - at, kept - own)
                        copy_bytes(to, read + own * unit, count * unit)
                        at += count
                        continue
                    index = padded_index(mode, own, kept)
                    if filled or index < 0:
                        fill_bytes(to, pattern, unit)
                    else:
                        copy_bytes(to, read + index * src_step, unit)
                    at += 1

    return kernel, types.void(*[types.int64] * 21)
