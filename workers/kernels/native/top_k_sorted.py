"""The largest or smallest elements along an axis, many of those of a row: the whole row is sorted by the bytes of its keys.

Keys are sorted from their last byte to the first, those of equal bytes in their order: the first of equal elements remains the
first. Bytes that are the same in all keys are passed over. The table has the loops over rows, innermost first, as (extent, bytes
from step to step in src, dst and indices). An item is some rows. Its scratchpad has the counts of all values of each byte, and
twice all pairs of a row's keys and indices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .bits import make_load, make_store, zero_bytes
from .compiler import types
from .keys import make_key
from .limits import key_lanes
from .vec import iload

_store_8 = make_store(8)
#: Bytes of the counts of a byte's values.
_COUNTS = 256 * 8


def make(isa: str, dtype: str, size: int, index_size: int, smallest: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature; elements have ``size`` bytes, indices ``index_size``."""
    key, load, store, store_index = make_key(dtype, smallest), make_load(size), make_store(size), make_store(index_size)
    # Keys of 32 bits are in the high half of a word, whose low half is the index; others have a word of their own.
    wide = key_lanes(dtype) == 8
    word, digits, start = (16, 8, 0) if wide else (8, 4, 32)
    # The best key becomes 0.
    turn = (1 << 63) - 1 if wide else (1 << 31) - 1

    def kernel(
        begin: int, end: int, src: int, dst: int, indices: int, table: int, scratch: int, loops: int, rows: int, group: int,
        room: int, k: int, length: int, src_step: int, dst_step: int, index_step: int,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            counts = scratch + room * item
            one = counts + digits * _COUNTS
            other = one + word * length
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
                zero_bytes(counts, digits * _COUNTS)
                place, to = source, one
                for number in range(length):
                    x = key(place) ^ turn
                    place += src_step
                    if wide:
                        _store_8(to, x)
                        _store_8(to + 8, number)
                    else:
                        x <<= 32
                        _store_8(to, x | number)
                    to += word
                    for digit in range(digits):
                        at = counts + digit * _COUNTS + 8 * (x >> (start + 8 * digit) & 255)
                        _store_8(at, iload(at) + 1)
                now, then = one, other
                for digit in range(digits):
                    base, shift = counts + digit * _COUNTS, start + 8 * digit
                    if iload(base + 8 * (iload(now) >> shift & 255)) == length:
                        continue
                    before = 0
                    for at in range(base, base + _COUNTS, 8):
                        own = iload(at)
                        _store_8(at, before)
                        before += own
                    for at in range(now, now + word * length, word):
                        x = iload(at)
                        slot = base + 8 * (x >> shift & 255)
                        free = iload(slot)
                        _store_8(slot, free + 1)
                        _store_8(then + word * free, x)
                        if wide:
                            _store_8(then + word * free + 8, iload(at + 8))
                    now, then = then, now
                for at in range(now, now + word * k, word):
                    number = iload(at + 8) if wide else iload(at) & 0xFFFFFFFF
                    store(target, load(source + number * src_step))
                    store_index(index, number)
                    target += dst_step
                    index += index_step

    return kernel, types.void(*[types.int64] * 16)
