"""The largest or smallest elements along an axis, of adjacent rows in the lanes of vectors: each element rises to its place.

The table has the outer loops, innermost first, as (extent, bytes from step to step in src, dst and indices). An item is some
vectors of rows; the best elements so far are in 192 k bytes of the scratchpad: vectors of keys, of elements and of indices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import types
from .keys import (
    key_lanes,
    make_choose,
    make_first_elements,
    make_first_keys,
    make_lanes_above,
    make_numbers,
    make_store_lanes,
)
from .vec import iload, vload, vstore


def make(isa: str, dtype: str, size: int, index_size: int, smallest: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature; elements have ``size`` bytes, indices ``index_size``."""
    first_keys, first_elements, lanes = make_first_keys(dtype, smallest), make_first_elements(dtype), key_lanes(dtype)
    numbers, above, choose = make_numbers(dtype), make_lanes_above(dtype), make_choose(dtype, last=False)
    store_elements, store_indices = make_store_lanes(dtype, size), make_store_lanes(dtype, index_size)

    def kernel(
        begin: int, end: int, src: int, dst: int, indices: int, table: int, scratch: int, loops: int, count: int,
        vectors: int, group: int, k: int, length: int, src_step: int, dst_step: int, index_step: int,
    ) -> None:  # fmt: skip
        pieces = (count + lanes - 1) // lanes
        for item in range(begin, end):
            best = scratch + 192 * k * item
            for piece in range(item * group, min(vectors, item * group + group)):
                rest = piece // pieces
                start = (piece - rest * pieces) * lanes
                source, target, index = src + start * size, dst + start * size, indices + start * index_size
                for loop in range(loops):
                    extent = iload(table + 32 * loop)
                    left = rest // extent
                    position = rest - left * extent
                    rest = left
                    source += position * iload(table + 32 * loop + 8)
                    target += position * iload(table + 32 * loop + 16)
                    index += position * iload(table + 32 * loop + 24)
                rows = min(lanes, count - start)
                for number in range(length):
                    new, element = first_keys(source, rows), first_elements(source, rows)
                    where = numbers(number, 0)
                    source += src_step
                    place = best + 192 * min(number, k - 1)
                    if number >= k:
                        # The worst of the best ones leaves those rows whose new element is better.
                        old = vload(place)
                        if above(new, old) == 0:
                            continue
                        element = choose(new, old, element, vload(place + 64))
                        where = choose(new, old, where, vload(place + 128))
                        new = choose(new, old, new, old)
                    while place > best:
                        old = vload(place - 192)
                        if above(new, old) == 0:
                            break
                        other, at = vload(place - 128), vload(place - 64)
                        vstore(place, choose(new, old, old, new))
                        vstore(place + 64, choose(new, old, other, element))
                        vstore(place + 128, choose(new, old, at, where))
                        element, where = choose(new, old, element, other), choose(new, old, where, at)
                        new = choose(new, old, new, old)
                        place -= 192
                    vstore(place, new)
                    vstore(place + 64, element)
                    vstore(place + 128, where)
                place = best
                for _ in range(k):
                    store_elements(target, vload(place + 64), rows)
                    store_indices(index, vload(place + 128), rows)
                    place += 192
                    target += dst_step
                    index += index_step

    return kernel, types.void(*[types.int64] * 16)
