"""Pool large windows along the width, then along the height: height + width elements a window, not height * width.

The geometry is the table of `pooling`; windows have one element in the depth, and no dilation. A work item is an image: of
a channel, 16 positions of a row a vector (``rows``), or of 16 channels a vector (``blocked``). Scratch memory holds each row
after the first step, in ``rows`` as whole vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import inlined
from .elements import elements
from .pooling import dimension, inside, make_see
from .vec import vadd, vcount_inside, vdiv, vkeep, vload, vmax, vmul, vset, vstore, vstore_part

#: Bytes of one dimension's entries in the table.
_DIM = 48


def make(isa: str, algorithm: str, part: str) -> tuple[Callable[..., None], Any]:
    """Return a kernel for ``max``, ``avg_include_padding`` or ``avg_exclude_padding`` of f32, and its signature."""
    makers = {"blocked": _blocked, "rows": _rows}
    return makers[part](algorithm == "max", algorithm == "avg_include_padding")


def _blocked(takes_max: bool, counts_padding: bool) -> tuple[Callable[..., None], Any]:
    combine = vmax if takes_max else vadd
    start = np.float32(-np.inf if takes_max else 0.0)

    def kernel(begin: int, end: int, src: int, dst: int, table: int, scratch: int, period: int, tail: int) -> None:
        depth = dimension(table)[0]
        height, out_height, window_h, stride_h, _, left_h = dimension(table + _DIM)
        width, out_width, window_w, stride_w, _, left_w = dimension(table + 2 * _DIM)
        nothing = vset(start)
        row = 64 * out_width
        for item in range(begin, end):
            lanes = tail if item // depth % period == period - 1 else 16
            between = scratch + item * height * row
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
                            count = max(1, (high - low) * (to_w - from_w))
                        value = vdiv(value, vset(np.float32(count)))
                    vstore(target, vkeep(value, lanes))
                    line += 64
                    target += 64

    return kernel, types.void(*[types.int64] * 8)


def _rows(takes_max: bool, counts_padding: bool) -> tuple[Callable[..., None], Any]:
    combine = vmax if takes_max else vadd
    start = np.float32(-np.inf if takes_max else 0.0)
    see, load = make_see("f32"), elements("f32").load

    @inlined
    def along_width(line: int, index: int, window: int, stride: int, width: int, nothing: Any) -> Any:
        """Return 16 neighbouring windows of a row."""
        value = nothing
        if stride == 1 and index >= 0 and index + window + 15 <= width:
            for at in range(line + 4 * index, line + 4 * (index + window), 4):
                value = combine(load(at), value)
        else:
            for number in range(index, index + window):
                value = combine(see(line, number, stride, width, nothing), value)
        return value

    def kernel(begin: int, end: int, src: int, dst: int, table: int, scratch: int) -> None:
        height, out_height, window_h, stride_h, _, left_h = dimension(table + _DIM)
        width, out_width, window_w, stride_w, _, left_w = dimension(table + 2 * _DIM)
        nothing = vset(start)
        row = 64 * ((out_width + 15) // 16)
        for item in range(begin, end):
            between = scratch + item * height * row
            for h in range(height):
                line = src + 4 * width * (item * height + h)
                for w in range(0, out_width, 16):
                    value = along_width(line, w * stride_w - left_w, window_w, stride_w, width, nothing)
                    vstore(between + h * row + 4 * w, value)
            for w in range(0, out_width, 16):
                columns = vset(np.float32(window_w))
                if not (takes_max or counts_padding):
                    columns = vset(np.float32(0.0))
                    first = w * stride_w - left_w
                    for number in range(first, first + window_w):
                        columns = vadd(columns, vcount_inside(number, stride_w, width))
                places = min(16, out_width - w)
                for h in range(out_height):
                    first = h * stride_h - left_h
                    low, high = inside(first, 1, window_h, height)
                    line = between + (first + low) * row + 4 * w
                    value = nothing
                    for at in range(line, line + (high - low) * row, row):
                        value = combine(vload(at), value)
                    if not takes_max:
                        count = window_h if counts_padding else high - low
                        value = vdiv(value, vmax(vmul(columns, vset(np.float32(count))), vset(np.float32(1.0))))
                    target = dst + 4 * ((item * out_height + h) * out_width + w)
                    if places == 16:
                        vstore(target, value)
                    else:
                        vstore_part(target, value, places)

    return kernel, types.void(*[types.int64] * 6)
