"""The index of the largest or smallest element along an axis, by vectors along it or along adjacent rows.

The table has the outer loops, innermost first, as (extent, bytes from step to step in src and dst). An item is some steps of
the inner loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .bits import make_store
from .compiler import types
from .keys import key_lanes, make_choose, make_key, make_keys, make_lane, make_numbers
from .vec import iload


def make(isa: str, part: str, dtype: str, size: int, smallest: bool, last: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature; indices have ``size`` bytes.

    ``part`` is ``row`` if elements along the axis are adjacent, ``columns`` if those along the inner loop are, else ``any``.
    """
    lanes = key_lanes(dtype)
    key, keys, numbers = make_key(dtype, smallest), make_keys(dtype, smallest), make_numbers(dtype)
    choose, lane, store = make_choose(dtype, last), make_lane(dtype), make_store(size)
    rows, columns = part == "row", part == "columns"

    def kernel(
        begin: int, end: int, src: int, dst: int, table: int, loops: int, count: int, chunk: int, src_step: int,
        dst_step: int, length: int, step: int,
    ) -> None:  # fmt: skip
        pieces = (count + chunk - 1) // chunk
        for item in range(begin, end):
            outer = item // pieces
            start = (item - outer * pieces) * chunk
            source = src + start * src_step
            target = dst + start * dst_step
            for loop in range(loops):
                extent = iload(table + 24 * loop)
                left = outer // extent
                position = outer - left * extent
                outer = left
                source += position * iload(table + 24 * loop + 8)
                target += position * iload(table + 24 * loop + 16)
            steps = min(chunk, count - start)
            at = 0
            while at < steps:
                if columns and steps >= lanes:
                    at = min(at, steps - lanes)
                    best, found = keys(source + at * src_step), numbers(0, 0)
                    for index in range(1, length):
                        new = keys(source + at * src_step + index * step)
                        found = choose(new, best, numbers(index, 0), found)
                        best = choose(new, best, new, best)
                    for number in range(lanes):
                        store(target + (at + number) * dst_step, lane(found, number))
                    at += lanes
                    continue
                place = source + at * src_step
                winner, index = key(place), 0
                behind = 1
                if rows and length >= lanes:
                    best, found = keys(place), numbers(0, 1)
                    behind = lanes
                    while behind + lanes <= length:
                        new = keys(place + behind * step)
                        found = choose(new, best, numbers(behind, 1), found)
                        best = choose(new, best, new, best)
                        behind += lanes
                    for number in range(lanes):
                        other, where = lane(best, number), lane(found, number)
                        if other > winner or (other == winner and (where > index if last else where < index)):
                            winner, index = other, where
                for following in range(behind, length):
                    other = key(place + following * step)
                    if other >= winner if last else other > winner:
                        winner, index = other, following
                store(target + at * dst_step, index)
                at += 1

    return kernel, types.void(*[types.int64] * 12)
