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


def make(isa: str, kind: str, reduction: str, wide: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature."""
    load_index, update = make_load_index(wide), make_update(reduction, kind)

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
            for _ in range(count):
                number = load_index(index)
                number += limit if number < 0 else 0
                if 0 <= number < limit:
                    update(target + number * dst_step, source)
                index += index_step
                source += updates_step

    return kernel, types.void(*[types.int64] * 12)
