"""Updates of the parts of a tensor at indices, in their order.

The table has the loops within a part, innermost first, as (extent, bytes from step to step in updates and dst), and then the
axes that have an index as (size, bytes from index to index in dst). Parts are numbered in their row-major order; an item is a
share of them, and takes the updates of its own ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .bits import make_load_index
from .compiler import types
from .updates import make_row_update, make_update
from .vec import iload


def make(isa: str, kind: str, reduction: str, wide: bool, axes: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature: for parts of one element that ``axes`` indices choose, or for any if it is 0."""
    load_index, update, update_row = (
        make_load_index(wide),
        make_update(reduction, kind),
        make_row_update(reduction, kind),
    )
    size = int(kind[1:]) // 8

    single, known = axes > 0, axes

    def kernel(
        begin: int, end: int, indices: int, updates: int, dst: int, table: int, shares: int, parts: int, loops: int,
        steps: int, count: int, updates_step: int, dst_step: int, axes: int, distance: int, places: int, dims: int,
    ) -> None:  # fmt: skip
        limits = table + 24 * loops
        outer = limits + 16 * axes
        adjacent = updates_step == size and dst_step == size
        along = known if single else axes
        # Shares that follow one another are one.
        first, last = parts * begin // shares, parts * end // shares
        for place in range(places):
            index, source = indices, updates
            rest = place
            for dim in range(dims):
                # A division takes as long as some updates.
                position = rest
                if dim + 1 < dims:
                    extent = iload(outer + 24 * dim)
                    rest //= extent
                    position -= rest * extent
                index += position * iload(outer + 24 * dim + 8)
                source += position * iload(outer + 24 * dim + 16)
            part, target, inside = 0, dst, True
            for axis in range(along):
                number = load_index(index + axis * distance)
                limit = iload(limits + 16 * axis)
                number += limit if number < 0 else 0
                inside &= 0 <= number < limit
                part = part * limit + number
                target += number * iload(limits + 16 * axis + 8)
            if not inside or part < first or part >= last:
                continue
            if single:
                update(target, source)
                continue
            for step in range(steps):
                rest, read, written = step, source, target
                for loop in range(loops):
                    extent = iload(table + 24 * loop)
                    left = rest // extent
                    position = rest - left * extent
                    rest = left
                    read += position * iload(table + 24 * loop + 8)
                    written += position * iload(table + 24 * loop + 16)
                if adjacent:
                    update_row(written, read, count)
                else:
                    for _ in range(count):
                        update(written, read)
                        read += updates_step
                        written += dst_step

    return kernel, types.void(*[types.int64] * 17)
