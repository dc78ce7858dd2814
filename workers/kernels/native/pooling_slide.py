"""Pool windows of 3 x 3 or 2 x 2 that move by one, with gaps or without: what neighbouring windows share is combined once.

A window is columns (``blocked``: 16 channels a vector, 3 x 3 only) or rows (``rows``: 16 positions of a row a vector), all but
one of which are also the next window's. With gaps, the next window is as many rows below as there are between its rows. The
geometry is the table of `pooling`; windows have one element in the depth. A work item is one row of the destination.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import inlined
from .first_lanes import vstore_part
from .pooling import DIM, dimension, inside, make_slabs
from .vec import (
    vadd,
    vcount_inside,
    vdiv,
    vkeep,
    vload,
    vload_inside,
    vmax,
    vmul,
    vset,
    vstore,
)


def make(isa: str, algorithm: str, part: str, window: int, gaps: bool = False) -> tuple[Callable[..., None], Any]:
    """Return a kernel for ``max``, ``avg_include_padding`` or ``avg_exclude_padding``, and its signature.

    A window has ``window`` rows and columns: 3, or 2 of ``rows``. Those of ``rows`` may have ``gaps``; a row has 16 windows at
    least then.
    """
    takes_max, counts_padding = algorithm == "max", algorithm == "avg_include_padding"
    return _rows(takes_max, counts_padding, window, gaps) if part == "rows" else _blocked(takes_max, counts_padding)


@inlined
def _seen(first: int, size: int, window: int) -> int:
    """Return how many of the ``window`` indices from ``first`` on are in [0, size)."""
    return max(0, min(first + window, size) - max(first, 0))


def _blocked(takes_max: bool, counts_padding: bool) -> tuple[Callable[..., None], Any]:
    combine = vmax if takes_max else vadd
    start = np.float32(-np.inf if takes_max else 0.0)
    slabs = make_slabs(counts_padding)

    @inlined
    def look(line: int, column: int, width: int, rows: int, nothing: Any) -> Any:
        """Return the combination of a column's ``rows`` elements, ``nothing`` outside of the source."""
        value = nothing
        if 0 <= column < width and rows > 0:
            at = line + 64 * column
            value = combine(vload(at), nothing)
            if rows > 1:
                value = combine(vload(at + 64 * width), value)
            if rows > 2:
                value = combine(vload(at + 128 * width), value)
        return value

    def kernel(begin: int, end: int, src: int, dst: int, table: int, period: int, tail: int) -> None:
        depth = dimension(table)[0]
        height, out_height, _, _, _, left_h = dimension(table + DIM)
        width, out_width, _, _, _, left_w = dimension(table + 2 * DIM)
        nothing = vset(start)
        plane = begin // out_height
        out_h = begin - plane * out_height
        for item in range(begin, end):
            lanes = tail if plane // depth % period == period - 1 else 16
            deep = slabs(table, plane % depth)
            whole = vset(np.float32(max(1, 9 * deep)))
            first_h = out_h - left_h
            rows = _seen(first_h, height, 3)
            line = src + 64 * width * (plane * height + max(first_h, 0))
            before = look(line, -left_w, width, rows, nothing)
            here = look(line, 1 - left_w, width, rows, nothing)
            for w in range(out_width):
                after = look(line, w + 2 - left_w, width, rows, nothing)
                value = combine(combine(before, here), after)
                if not takes_max:
                    count = 9
                    if not counts_padding:
                        count = rows * _seen(w - left_w, width, 3)
                    if count == 9:
                        value = vdiv(value, whole)
                    else:
                        value = vdiv(value, vset(np.float32(max(1, count * deep))))
                vstore(dst + 64 * (item * out_width + w), vkeep(value, lanes))
                before, here = here, after
            out_h += 1
            if out_h == out_height:
                out_h = 0
                plane += 1

    return kernel, types.void(*[types.int64] * 7)


def _rows(takes_max: bool, counts_padding: bool, window: int, gaps: bool) -> tuple[Callable[..., None], Any]:
    combine = vmax if takes_max else vadd
    start = np.float32(-np.inf if takes_max else 0.0)
    slabs = make_slabs(counts_padding)

    @inlined
    def look(source: int, row: int, height: int, width: int, index: int, step: int, nothing: Any) -> Any:
        """Return the combinations of a window's columns in 16 places of a row, ``nothing`` outside of the source."""
        value = nothing
        if 0 <= row < height:
            line = source + 4 * width * row
            value = combine(vload_inside(line, index, width, nothing), nothing)
            value = combine(vload_inside(line, index + step, width, nothing), value)
            if window == 3:
                value = combine(vload_inside(line, index + 2 * step, width, nothing), value)
        return value

    def kernel(begin: int, end: int, src: int, dst: int, table: int) -> None:
        depth = dimension(table)[0]
        height, out_height, _, _, down, left_h = dimension(table + DIM)
        width, out_width, _, _, step, left_w = dimension(table + 2 * DIM)
        if not gaps:
            down, step = 1, 1
        nothing = vset(start)
        one = vset(np.float32(1.0))
        item = begin
        while item < end:
            plane = item // out_height
            first = item - plane * out_height
            rows = min(out_height - first, end - item)
            source = src + 4 * width * height * plane
            deep = slabs(table, plane % depth)
            for begin_w in range(0, out_width, 16):
                w = begin_w
                if gaps:
                    # The last windows of a row with some of those before them: stores of a part of a vector are slow.
                    w = min(begin_w, out_width - 16)
                index = w - left_w
                count = min(16, out_width - w)
                columns = vset(np.float32(window))
                if not (takes_max or counts_padding):
                    columns = vcount_inside(index, 1, width)
                    columns = vadd(columns, vcount_inside(index + step, 1, width))
                    if window == 3:
                        columns = vadd(columns, vcount_inside(index + 2 * step, 1, width))
                whole = vmax(vmul(columns, vset(np.float32(window * deep))), one)
                for phase in range(min(down, rows)):
                    y = first + phase - left_h
                    target = dst + 4 * ((item + phase) * out_width + w)
                    above = look(source, y, height, width, index, step, nothing)
                    here = above
                    if window == 3:
                        here = look(source, y + down, height, width, index, step, nothing)
                    for _ in range(phase, rows, down):
                        below = look(source, y + (window - 1) * down, height, width, index, step, nothing)
                        value = combine(above, below)
                        if window == 3:
                            value = combine(combine(above, here), below)
                        if not takes_max:
                            seen = window
                            if not counts_padding:
                                low, high = inside(y, down, window, height)
                                seen = high - low
                            if seen == window:
                                value = vdiv(value, whole)
                            else:
                                value = vdiv(value, vmax(vmul(columns, vset(np.float32(seen * deep))), one))
                        if gaps or count == 16:
                            vstore(target, value)
                        else:
                            vstore_part(target, value, count)
                        above, here = (here, below) if window == 3 else (below, below)
                        target += 4 * out_width * down
                        y += down
            item += rows

    return kernel, types.void(*[types.int64] * 5)
