"""Updates of the elements of a tensor at indices along an axis, in their order.

The table has the loops over rows, innermost first, as (extent, bytes from step to step in indices, updates and dst). An item is
a row along the axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .bits import make_load_index
from .compiler import types
from .updates import make_update
from .vec import iload


def make(isa: str, kind: str, reduction: str, wide: bool, dense: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature; if they are ``dense``, all elements of a row are adjacent."""
    load_index, update = make_load_index(wide), make_update(reduction, kind)
    size, index_size = int(kind[1:]) // 8, 8 if wide else 4

    def kernel(
        begin: int, end: int, indices: int, updates: int, dst: int, table: int, loops: int, count: int, index_step: int,
        updates_step: int, limit: int, dst_step: int,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            index, source, target, rest = indices, updates, dst, item
            for loop in range(loops):
                extent = iload(table + 32 * loop)
                left = rest // extent
                position = rest - left * extent
                rest = left
                index += position * iload(table + 32 * loop + 8)
                source += position * iload(table + 32 * loop + 16)
                target += position * iload(table + 32 * loop + 24)
            left = count
            while dense and left >= 4:
                # Mostly, all indices count from the first element: one branch for four of them.
                a, b = load_index(index), load_index(index + index_size)
                c, d = load_index(index + 2 * index_size), load_index(index + 3 * index_size)
                if not (0 <= a < limit and 0 <= b < limit and 0 <= c < limit and 0 <= d < limit):
                    break
                update(target + a * size, source)
                update(target + b * size, source + size)
                update(target + c * size, source + 2 * size)
                update(target + d * size, source + 3 * size)
                index += 4 * index_size
                source += 4 * size
                left -= 4
            for _ in range(left):
                number = load_index(index)
                number += limit if number < 0 else 0
                if 0 <= number < limit:
                    update(target + number * (size if dense else dst_step), source)
                index += index_size if dense else index_step
                source += size if dense else updates_step

    return kernel, types.void(*[types.int64] * 12)
