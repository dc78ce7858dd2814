"""Copy a tensor to its place among elements that are added around it, or cut it.

The innermost dimension has units of bytes, of which an item is some. The table has the other dimensions, innermost first, as
(size in dst, bytes from index to index in dst and in src, elements added before, elements kept). src begins at the first
element that is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types

from .bits import copy_bytes, fill_bytes
from .padded_index import padded_index
from .vec import iload


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature. ``pattern`` has eight bytes of constant elements; see `padded_index` for modes."""

    def kernel(
        begin: int, end: int, src: int, dst: int, table: int, dims: int, size: int, chunk: int, dst_step: int, src_step: int,
        before: int, kept: int, unit: int, mode: int, pattern: int,
    ) -> None:  # fmt: skip
        pieces = (size + chunk - 1) // chunk
        adjacent = dst_step == unit and src_step == unit
        for item in range(begin, end):
            outer = item // pieces
            first = (item - outer * pieces) * chunk
            last = min(size, first + chunk)
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
            at = first
            if not inside and dst_step == unit:
                fill_bytes(target + at * unit, pattern, (last - at) * unit)
                at = last
            while at < last:
                to = target + at * dst_step
                own = at - before
                if inside and adjacent and 0 <= own < kept:
                    count = min(last - at, kept - own)
                    copy_bytes(to, source + own * unit, count * unit)
                    at += count
                    continue
                index = padded_index(mode, own, kept)
                if inside and index >= 0:
                    copy_bytes(to, source + index * src_step, unit)
                else:
                    fill_bytes(to, pattern, unit)
                at += 1

    return kernel, types.void(*[types.int64] * 15)
