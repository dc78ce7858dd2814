"""The sums of the elements up to each one along an axis, of eight adjacent rows at once if there are.

The table has the outer loops, innermost first, as (extent, bytes from step to step in src and dst). An item is eight steps of the
inner loop, whose sums are in 64 bytes of the scratchpad.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types

from .running_sum import clear_sums, make_add
from .vec import iload


def make(isa: str, kind: str, exclusive: bool, adjacent: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature; rows are ``adjacent`` if the elements of the inner loop are."""
    one, eight = make_add(kind, 1, exclusive), make_add(kind, 8, exclusive)

    def kernel(
        begin: int, end: int, src: int, dst: int, table: int, sums: int, loops: int, count: int, src_step: int,
        dst_step: int, length: int, src_next: int, dst_next: int,
    ) -> None:  # fmt: skip
        pieces = (count + 7) // 8
        for item in range(begin, end):
            outer = item // pieces
            start = (item - outer * pieces) * 8
            source = src + start * src_step
            target = dst + start * dst_step
            total = sums + 64 * item
            for loop in range(loops):
                extent = iload(table + 24 * loop)
                left = outer // extent
                position = outer - left * extent
                outer = left
                source += position * iload(table + 24 * loop + 8)
                target += position * iload(table + 24 * loop + 16)
            clear_sums(total)
            rows = min(8, count - start)
            if adjacent and rows == 8:
                for index in range(length):
                    eight(total, source + index * src_next, target + index * dst_next)
            else:
                for row in range(rows):
                    place, to = source + row * src_step, target + row * dst_step
                    for index in range(length):
                        one(total + 8 * row, place + index * src_next, to + index * dst_next)

    return kernel, types.void(*[types.int64] * 13)
