"""The largest or smallest elements along an axis, by a heap of the best ones so far with the worst of them on top.

The table has the loops over rows, innermost first, as (extent, bytes from step to step in src, dst and indices). An item is some
rows; its heap of pairs of key and index is in 16 k bytes of the scratchpad.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .bits import make_load, make_store
from .compiler import types
from .keys import lowest_bit, make_above, make_key, make_keys
from .limits import key_lanes
from .vec import iload

_store_8 = make_store(8)


def make(
    isa: str, dtype: str, size: int, index_size: int, smallest: bool, adjacent: bool
) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature; elements have ``size`` bytes, indices ``index_size``.

    If the elements of a row are ``adjacent``, vectors of them without one that is better than the worst are passed over.
    """
    keys, above, lanes = make_keys(dtype, smallest), make_above(dtype), key_lanes(dtype)
    key, load, store, store_index = make_key(dtype, smallest), make_load(size), make_store(size), make_store(index_size)

    def kernel(
        begin: int, end: int, src: int, dst: int, indices: int, table: int, scratch: int, loops: int, rows: int, group: int,
        k: int, length: int, src_step: int, dst_step: int, index_step: int,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            heap = scratch + 16 * k * item
            for row in range(item * group, min(rows, item * group + group)):
                source, target, index, rest = src, dst, indices, row
                for loop in range(loops):
                    extent = iload(table + 32 * loop)
                    left = rest // extent
                    position = rest - left * extent
                    rest = left
                    source += position * iload(table + 32 * loop + 8)
                    target += position * iload(table + 32 * loop + 16)
                    index += position * iload(table + 32 * loop + 24)
                # Sunk from the back, the first k elements become a heap.
                for number in range(k - 1, -1, -1):
                    sink(heap, number, k, key(source + number * src_step), number)
                worst = iload(heap)
                behind = k
                while adjacent and behind + lanes <= length:
                    found = above(keys(source + behind * size), worst)
                    while found != 0:
                        number = behind + lowest_bit(found)
                        found &= found - 1
                        x = key(source + number * size)
                        if x > worst:
                            sink(heap, 0, k, x, number)
                            worst = iload(heap)
                    behind += lanes
                for number in range(behind, length):
                    x = key(source + number * src_step)
                    if x > worst:
                        sink(heap, 0, k, x, number)
                        worst = iload(heap)
                # The worst of those that are left goes behind them.
                for left in range(k - 1, 0, -1):
                    top, place = iload(heap), iload(heap + 8)
                    sink(heap, 0, left, iload(heap + 16 * left), iload(heap + 16 * left + 8))
                    _store_8(heap + 16 * left, top)
                    _store_8(heap + 16 * left + 8, place)
                for number in range(k):
                    place = iload(heap + 16 * number + 8)
                    store(target + number * dst_step, load(source + place * src_step))
                    store_index(index + number * index_step, place)

    return kernel, types.void(*[types.int64] * 15)


def sink(heap: int, place: int, size: int, key: int, index: int) -> None:
    """Put a pair at a place of a heap of a size, or below it: worse pairs rise, those of a smaller key or a later index."""
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        low, where = iload(heap + 16 * child), iload(heap + 16 * child + 8)
        if child + 1 < size:
            other, at = iload(heap + 16 * child + 16), iload(heap + 16 * child + 24)
            if other < low or (other == low and at > where):
                child, low, where = child + 1, other, at
        if not (low < key or (low == key and where > index)):
            break
        _store_8(heap + 16 * place, low)
        _store_8(heap + 16 * place + 8, where)
        place = child
    _store_8(heap + 16 * place, key)
    _store_8(heap + 16 * place + 8, index)
