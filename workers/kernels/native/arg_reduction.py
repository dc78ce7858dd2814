"""The index of the largest or smallest element along an axis, by vectors along it or along adjacent rows.

The table has the outer loops, innermost first, as (extent, bytes from step to step in src, copy and dst). An item is some steps
of the inner loop.
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
    make_highest,
    make_key,
    make_keys,
    make_lane,
    make_lane_of,
    make_number_of,
    make_numbers,
    make_store_lanes,
)
from .limits import key_lanes
from .vec import iload


def make(
    isa: str, part: str, dtype: str, size: int, smallest: bool, last: bool, copied: int
) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature; indices have ``size`` bytes.

    Elements of ``copied`` bytes are copied; if these are 0, the kernel gives indices only.
    ``part`` is ``row`` if elements along the axis are adjacent, ``columns`` if those along the inner loop are, else ``any``.
    """
    lanes = key_lanes(dtype)
    key, keys, numbers = make_key(dtype, smallest), make_keys(dtype, smallest), make_numbers(dtype)
    choose, lane, store = make_choose(dtype, last), make_lane(dtype), make_store(size)
    highest, number_of, lane_of = make_highest(dtype), make_number_of(dtype, last), make_lane_of(dtype, last)
    first_keys, first_elements = make_first_keys(dtype, smallest), make_first_elements(dtype)
    load_element, store_element = make_load(copied or 1), make_store(copied or 1)
    store_lanes, store_elements = make_store_lanes(dtype, size), make_store_lanes(dtype, copied or 1)
    rows, columns = part == "row", part == "columns"

    def kernel(
        begin: int, end: int, src: int, copy: int, dst: int, table: int, loops: int, count: int, chunk: int, src_step: int,
        copy_step: int, dst_step: int, length: int, step: int,
    ) -> None:  # fmt: skip
        pieces = (count + chunk - 1) // chunk
        for item in range(begin, end):
            outer = item // pieces
            start = (item - outer * pieces) * chunk
            source = src + start * src_step
            target = dst + start * dst_step
            copies = copy + start * copy_step
            for loop in range(loops):
                extent = iload(table + 32 * loop)
                left = outer // extent
                position = outer - left * extent
                outer = left
                source += position * iload(table + 32 * loop + 8)
                copies += position * iload(table + 32 * loop + 16)
                target += position * iload(table + 32 * loop + 24)
            steps = min(chunk, count - start)
            at = 0
            while at < steps:
                place = source + at * src_step
                if columns:
                    width = min(lanes, steps - at)
                    best, found = first_keys(place, width), numbers(0, 0)
                    element = first_elements(place, width)
                    for index in range(1, length):
                        place += step
                        new = first_keys(place, width)
                        found = choose(new, best, numbers(index, 0), found)
                        if copied:
                            element = choose(new, best, first_elements(place, width), element)
                        best = choose(new, best, new, best)
                    if dst_step == size and (not copied or copy_step == copied):
                        store_lanes(target + at * dst_step, found, width)
                        if copied:
                            store_elements(copies + at * copy_step, element, width)
                    else:
                        for number in range(width):
                            store(target + (at + number) * dst_step, lane(found, number))
                            if copied:
                                store_element(copies + (at + number) * copy_step, lane(element, number))
                    at += lanes
                    continue
                if rows and length >= lanes:
                    best, found = keys(place), numbers(0, 1)
                    behind = lanes
                    while behind < length:
                        # The last vector may have elements of the one before, too.
                        behind = min(behind, length - lanes)
                        new = keys(place + behind * step)
                        found = choose(new, best, numbers(behind, 1), found)
                        best = choose(new, best, new, best)
                        behind += lanes
                    index = number_of(highest(best), best, found)
                elif rows:
                    best = first_keys(place, length)
                    index = lane_of(highest(best), best, length)
                else:
                    winner, index = key(place), 0
                    for following in range(1, length):
                        other = key(place + following * step)
                        if other >= winner if last else other > winner:
                            winner, index = other, following
                store(target + at * dst_step, index)
                if copied:
                    store_element(copies + at * copy_step, load_element(place + index * step))
                at += 1

    return kernel, types.void(*[types.int64] * 14)
