"""Pool large windows along the width, then along the height: height + width elements a window, not height * width.

The geometry is the table of `pooling`; windows have one element in the depth, and no dilation. A work item is an image: of
a channel, 16 positions of a row a vector (``rows``), or of 16 channels a vector (``blocked``). Scratch memory holds each row
after the first step, in ``rows`` as whole vectors. Rows of windows that move by one are first copied with margins in the place
of the padding, ``wide`` bytes each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import inlined
from .first_lanes import vstore_part
from .pooling import DIM, dimension, inside, make_see, make_slabs
from .vec import vadd, vcount_inside, vdiv, vkeep, vload, vload_part, vmax, vmul, vset, vstore


def make(isa: str, algorithm: str, part: str) -> tuple[Callable[..., None], Any]:
    """Return a kernel for ``max``, ``avg_include_padding`` or ``avg_exclude_padding`` of f32, and its signature."""
    makers = {"blocked": _blocked, "rows": _rows}
    return makers[part](algorithm == "max", algorithm == "avg_include_padding")


def _blocked(takes_max: bool, counts_padding: bool) -> tuple[Callable[..., None], Any]:
    combine = vmax if takes_max else vadd
    start, slabs = np.float32(-np.inf if takes_max else 0.0), make_slabs(counts_padding)

    def kernel(begin: int, end: int, src: int, dst: int, table: int, scratch: int, period: int, tail: int) -> None:
        depth = dimension(table)[0]
        height, out_height, window_h, stride_h, _, left_h = dimension(table + DIM)
        width, out_width, window_w, stride_w, _, left_w = dimension(table + 2 * DIM)
        nothing = vset(start)
        row = 64 * out_width
        for item in range(begin, end):
            lanes = tail if item // depth % period == period - 1 else 16
            # Each range of items has its own memory, which stays in the cache.
            between = scratch + begin * height * row
            for w in range(out_width):
                first = w * stride_w - left_w
                low, high = inside(first, 1, window_w, width)
                line = src + 64 * (item * height * width + first)
                for h in range(height):
                    value = nothing
                    for at in range(line + 64 * low, line + 64 * high, 64):
                        value = combine(vload(at), value)
                    vstore(between + h * row + 64 * w, value)
                    line += 64 * width
            for h in range(out_height):
                first = h * stride_h - left_h
                low, high = inside(first, 1, window_h, height)
                line = between + (first + low) * row
                target = dst + (item * out_height + h) * row
                for w in range(out_width):
                    value = nothing
                    for at in range(line, line + (high - low) * row, row):
                        value = combine(vload(at), value)
                    if not takes_max:
                        count = window_h * window_w
                        if not counts_padding:
                            from_w, to_w = inside(w * stride_w - left_w, 1, window_w, width)
                            count = (high - low) * (to_w - from_w)
                        count *= slabs(table, item % depth)
                        value = vdiv(value, vset(np.float32(max(1, count))))
                    vstore(target, vkeep(value, lanes))
                    line += 64
                    target += 64

    return kernel, types.void(*[types.int64] * 8)


def _rows(takes_max: bool, counts_padding: bool) -> tuple[Callable[..., None], Any]:
    combine = vmax if takes_max else vadd
    start, slabs = np.float32(-np.inf if takes_max else 0.0), make_slabs(counts_padding)
    see = make_see("f32")

    @inlined
    def widen(line: int, to: int, left: int, width: int, end: int, nothing: Any) -> None:
        """Copy a row and write ``nothing`` before it and behind it, up to ``end`` elements in all or some more."""
        for column in range(0, left, 16):
            vstore(to + 4 * column, nothing)
        for column in range(0, width & -16, 16):
            vstore(to + 4 * (left + column), vload(line + 4 * column))
        if width & 15:
            vstore(to + 4 * (left + (width & -16)), vload_part(line + 4 * (width & -16), width & 15))
        for column in range(left + width, end, 16):
            vstore(to + 4 * column, nothing)

    def kernel(begin: int, end: int, src: int, dst: int, table: int, scratch: int, wide: int) -> None:
        depth = dimension(table)[0]
        height, out_height, window_h, stride_h, _, left_h = dimension(table + DIM)
        width, out_width, window_w, stride_w, _, left_w = dimension(table + 2 * DIM)
        nothing = vset(start)
        row = 64 * ((out_width + 15) // 16)
        # Each range of items has its own memory, which stays in the cache: wide rows, then their sums.
        lines = scratch + begin * height * (row + wide)
        between = lines + height * wide
        for item in range(begin, end):
            line = src + 4 * width * item * height
            if wide > 0:
                for to in range(lines, lines + height * wide, wide):
                    widen(line, to, left_w, width, 16 * ((out_width + 15) // 16) + window_w, nothing)
                    line += 4 * width
                for h in range(height):
                    for w in range(0, row, 64):
                        value = nothing
                        first = lines + h * wide + w
                        for at in range(first, first + 4 * window_w, 4):
                            value = combine(vload(at), value)
                        vstore(between + h * row + w, value)
            else:
                for h in range(height):
                    for w in range(0, out_width, 16):
                        value = nothing
                        first = w * stride_w - left_w
                        for number in range(first, first + window_w):
                            value = combine(see(line, number, stride_w, width, nothing), value)
                        vstore(between + h * row + 4 * w, value)
                    line += 4 * width
            last = dst + 4 * (item + 1) * out_height * out_width - 64
            for begin_w in range(0, out_width, 16):
                # The last 16 windows of a row may have been stored before in part: stores of part of a vector are slow.
                w = max(0, min(begin_w, out_width - 16))
                columns = vset(np.float32(window_w))
                if not (takes_max or counts_padding):
                    columns = vset(np.float32(0.0))
                    first = w * stride_w - left_w
                    for number in range(first, first + window_w):
                        columns = vadd(columns, vcount_inside(number, stride_w, width))
                for h in range(out_height):
                    first = h * stride_h - left_h
                    low, high = inside(first, 1, window_h, height)
                    line = between + (first + low) * row + 4 * w
                    value = nothing
                    for at in range(line, line + (high - low) * row, row):
                        value = combine(vload(at), value)
                    if not takes_max:
                        count = (window_h if counts_padding else high - low) * slabs(table, item % depth)
                        value = vdiv(value, vmax(vmul(columns, vset(np.float32(count))), vset(np.float32(1.0))))
                    target = dst + 4 * ((item * out_height + h) * out_width + w)
                    # What is behind a short row is the next one, which is stored later.
                    if target <= last:
                        vstore(target, value)
                    else:
                        vstore_part(target, value, min(16, out_width - w))

    return kernel, types.void(*[types.int64] * 7)
