"""The largest or smallest elements along an axis, of rows in the lanes of vectors: each element rises to its place.

The table has the outer loops, innermost first, as (extent, bytes from step to step in src, dst and indices). An item is some
vectors of rows; the best elements so far are in 192 k bytes of the scratchpad: vectors of keys, of elements and of indices.
Rows that are not adjacent are copied behind these first, their elements side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .bits import make_load, make_store
from .compiler import types
from .keys import (
    make_choose,
    make_first_elements,
    make_first_keys,
    make_lanes_above,
    make_numbers,
    make_store_lanes,
)
from .limits import key_lanes
from .vec import iload, vload, vstore


def make(
    isa: str, dtype: str, size: int, index_size: int, smallest: bool, adjacent: bool
) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature; elements have ``size`` bytes, indices ``index_size``.

    The rows of a vector are ``adjacent``, or any distance apart.
    """
    first_keys, first_elements, lanes = make_first_keys(dtype, smallest), make_first_elements(dtype), key_lanes(dtype)
    numbers, above, choose = make_numbers(dtype), make_lanes_above(dtype), make_choose(dtype, last=False)
    store_elements, store_indices = make_store_lanes(dtype, size), make_store_lanes(dtype, index_size)
    load, store, store_index = make_load(size), make_store(size), make_store(index_size)
    # Bytes of a lane, and of a row's elements side by side.
    wide, line = 64 // lanes, lanes * size
    load_number = make_load(wide)

    def kernel(
        begin: int, end: int, src: int, dst: int, indices: int, table: int, scratch: int, loops: int, count: int,
        vectors: int, group: int, src_row: int, dst_row: int, index_row: int, k: int, length: int, src_step: int,
        dst_step: int, index_step: int,
    ) -> None:  # fmt: skip
        pieces = (count + lanes - 1) // lanes
        room = 192 * k + (0 if adjacent else line * length)
        for item in range(begin, end):
            best = scratch + room * item
            for piece in range(item * group, min(vectors, item * group + group)):
                rest = piece // pieces
                start = (piece - rest * pieces) * lanes
                source, target, index = src + start * src_row, dst + start * dst_row, indices + start * index_row
                for loop in range(loops):
                    extent = iload(table + 32 * loop)
                    left = rest // extent
                    position = rest - left * extent
                    rest = left
                    source += position * iload(table + 32 * loop + 8)
                    target += position * iload(table + 32 * loop + 16)
                    index += position * iload(table + 32 * loop + 24)
                rows = min(lanes, count - start)
                along = src_step
                if not adjacent:
                    for row in range(rows):
                        place, to = source + row * src_row, best + 192 * k + row * size
                        for _ in range(length):
                            store(to, load(place))
                            place += src_step
                            to += line
                    source, along = best + 192 * k, line
                for number in range(length):
                    new, element = first_keys(source, rows), first_elements(source, rows)
                    where = numbers(number, 0)
                    source += along
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
                if adjacent:
                    place = best
                    for _ in range(k):
                        store_elements(target, vload(place + 64), rows)
                        store_indices(index, vload(place + 128), rows)
                        place += 192
                        target += dst_step
                        index += index_step
                else:
                    for row in range(rows):
                        place, to, then = best + 64 + row * wide, target + row * dst_row, index + row * index_row
                        for _ in range(k):
                            store(to, load(place))
                            store_index(then, load_number(place + 64))
                            place += 192
                            to += dst_step
                            then += index_step

    return kernel, types.void(*[types.int64] * 19)
