"""Pool large windows that move by one over planes: windows are made of two of half their size, in both directions.

A window of 13 elements is two of 6 and an element, one of 6 is two of 3, and one of 3 three elements: three passes over a plane
instead of 13. A plane is copied with margins in the place of the padding. It is one run of elements then, some of which no
window begins with. The geometry is the table of `pooling`; windows have one element in the depth, and no dilation. A work item
is a plane. Scratch memory holds two planes of f32, of as many elements as all windows see, and a row of divisors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import inlined
from .elements import elements
from .pooling import DIM, dimension, inside, make_slabs
from .vec import vadd, vcount_inside, vdiv, vload, vmax, vmul, vset, vstore


def make(isa: str, algorithm: str, dtype: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for ``max``, ``avg_include_padding`` or ``avg_exclude_padding`` of f32, f16 or bf16, and its signature.

    The last argument is the number of bytes of scratch memory for a plane of windows, a multiple of 64.
    """
    takes_max, counts_padding = algorithm == "max", algorithm == "avg_include_padding"
    combine = vmax if takes_max else vadd
    of = elements(dtype)
    item_size, load, load_part, store, store_part = of.size, of.load, of.load_part, of.store, of.store_part
    start, slabs = np.float32(-np.inf if takes_max else 0.0), make_slabs(counts_padding)

    @inlined
    def fill(at: int, stop: int, nothing: Any) -> None:
        """Write ``nothing`` up to an address, or up to a vector behind it."""
        while at < stop:
            vstore(at, nothing)
            at += 64

    @inlined
    def number(value: Any, nothing: Any) -> Any:
        """Return elements, ``nothing`` in place of NaN for maxima, which do not see it."""
        return vmax(value, nothing) if takes_max else value

    @inlined
    def grow(source: int, to: int, step: int, window: int, count: int, after: int) -> None:
        """Combine ``window`` elements, ``step`` bytes apart, at each place of ``count`` bytes.

        The count is less by ``after`` for each element of a window but one.
        """
        bit = 1
        while 4 * bit <= window:
            bit *= 2
        size, before = 1, source
        while bit > 0:
            shift = size * step
            size = 2 * size + (1 if window & bit else 0)
            stop = count - (size - 1) * after
            if window & bit:
                for at in range(0, stop, 64):
                    value = combine(vload(before + at + shift), vload(before + at))
                    vstore(to + at, combine(vload(source + at + 2 * shift), value))
            else:
                for at in range(0, stop, 64):
                    vstore(to + at, combine(vload(before + at + shift), vload(before + at)))
            before = to
            bit //= 2

    def kernel(begin: int, end: int, src: int, dst: int, table: int, scratch: int, nbytes: int) -> None:
        depth = dimension(table)[0]
        height, out_height, window_h, _, _, top = dimension(table + DIM)
        width, out_width, window_w, _, _, left = dimension(table + 2 * DIM)
        nothing = vset(start)
        lines, columns = out_height + window_h - 1, out_width + window_w - 1
        rows, seen = max(0, min(height, lines - top)), max(0, min(width, columns - left))
        row = 4 * columns
        plane = row * lines + 4 * window_w + 128
        # Each range of items has its own memory, which stays in the cache.
        given = scratch + begin * nbytes
        wide, divisors = given + plane, given + 2 * plane
        body = wide + min(top, lines) * row
        fill(wide, body, nothing)
        if not takes_max:
            for w in range(0, out_width, 16):
                count = vset(np.float32(window_w))
                if not counts_padding:
                    count = vset(np.float32(0.0))
                    for column in range(w - left, w - left + window_w):
                        count = vadd(vcount_inside(column, 1, width), count)
                vstore(divisors + 4 * w, count)
        last = dst + item_size * (end * out_height * out_width - 16)
        for item in range(begin, end):
            line, to = src + item_size * item * height * width, given
            for _ in range(rows):
                fill(to, to + 4 * left, nothing)
                at, stop = to + 4 * left, to + 4 * (left + seen)
                place = line
                while at + 64 <= stop:
                    vstore(at, number(load(place), nothing))
                    at += 64
                    place += 16 * item_size
                if at < stop:
                    vstore(at, number(load_part(place, (stop - at) // 4), nothing))
                fill(stop, to + row, nothing)
                to += row
                line += item_size * width
            grow(given, body, 4, window_w, rows * row, 0)
            fill(body + rows * row, wide + lines * row, nothing)
            grow(wide, given, row, window_h, lines * row, row)
            target = dst + item_size * item * out_height * out_width
            for h in range(out_height):
                low, high = inside(h - top, 1, window_h, height)
                count = vset(np.float32((window_h if counts_padding else high - low) * slabs(table, item % depth)))
                for w in range(0, out_width, 16):
                    value = vload(given + h * row + 4 * w)
                    if not takes_max:
                        value = vdiv(value, vmax(vmul(vload(divisors + 4 * w), count), vset(np.float32(1.0))))
                    # What is behind a short row is the next one, which is stored later.
                    if target + item_size * w <= last:
                        store(target + item_size * w, value)
                    else:
                        store_part(target + item_size * w, value, min(16, out_width - w))
                target += item_size * out_width

    return kernel, types.void(*[types.int64] * 7)
