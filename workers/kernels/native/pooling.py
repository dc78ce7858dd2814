"""Pool windows over up to three spatial dimensions.

The geometry is a table of int64: for each of depth, height and width the source size, destination size, kernel,
stride, dilation (1 = dense) and left padding. Behind them is the depth once more, as `pooling_slabs` has combined it before:
windows of one element where it has not. A work item is one row of the destination. Three kernels: ``blocked`` has 16 channels
a vector; ``rows`` has 16 positions of a row a vector; ``whole`` reduces a channel's contiguous source to one element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import inlined
from .elements import elements
from .inside import load_apart, load_inside
from .vec import (
    dcount_inside,
    iload,
    vadd,
    vcount_inside,
    vdiv,
    veven,
    vkeep,
    vmax,
    vmax_lane,
    vmul,
    vodd,
    vsum,
)

#: Bytes of one dimension's entries in the table, and where those are of slabs that were combined before.
DIM = 48
SLABS = 3 * DIM


def make(isa: str, algorithm: str, part: str, dtype: str) -> tuple[Callable[..., None], Any]:
    """Return a kernel for ``max``, ``avg_include_padding`` or ``avg_exclude_padding`` on a data type, and its signature."""
    makers = {"blocked": _blocked, "rows": _rows, "whole": _whole}
    return makers[part](algorithm == "max", algorithm == "avg_include_padding", dtype)


@inlined
def dimension(table: int) -> tuple[int, int, int, int, int, int]:
    """Return source size, destination size, kernel, stride, dilation and left padding of a dimension."""
    return (
        iload(table), iload(table + 8), iload(table + 16), iload(table + 24), iload(table + 32), iload(table + 40),
    )  # fmt: skip


@inlined
def inside(first: int, step: int, window: int, size: int) -> tuple[int, int]:
    """Return the range of window positions whose index first + position * step is in [0, size)."""
    low = 0
    if first < 0:
        low = (step - 1 - first) // step
    high = window
    if first + (window - 1) * step >= size:
        high = (size - first + step - 1) // step
    return low, max(low, high)


def make_slabs(counts_padding: bool) -> Any:
    """Return the function of the table and a place along the depth that returns how many slabs were added there before."""

    @inlined
    def slabs(table: int, out_d: int) -> int:
        depth, _, window, stride, step, left = dimension(table + SLABS)
        count = window
        if not counts_padding:
            low, high = inside(out_d * stride - left, step, window, depth)
            count = high - low
        return count

    return slabs


@inlined
def row_of(item: int, depth: int, height: int) -> tuple[int, int, int]:
    """Return the channel, depth and height of a row by its number."""
    rest = item // height
    return rest // depth, rest % depth, item - rest * height


@inlined
def next_row(channel: int, d: int, h: int, depth: int, height: int) -> tuple[int, int, int]:
    """Return the channel, depth and height of the row behind one; divisions would take as long as half a row."""
    h += 1
    if h == height:
        h = 0
        d += 1
        if d == depth:
            d = 0
            channel += 1
    return channel, d, h


def make_see(dtype: str) -> Any:
    """Return the function of a row that returns what 16 windows see of it."""
    seen_inside, seen_apart = load_inside(dtype), load_apart(dtype)

    @inlined
    def see(line: int, index: int, stride: int, width: int, nothing: Any) -> Any:
        """Return the elements at index, index + stride, ... of a row, ``nothing`` for those outside of it."""
        if stride == 1:
            seen = seen_inside(line, index, width, nothing)
        elif stride == 2:
            seen = veven(seen_inside(line, index, width, nothing), seen_inside(line, index + 16, width, nothing))
        else:
            seen = seen_apart(line, index, stride, width, nothing)
        return seen

    return see


def _blocked(takes_max: bool, counts_padding: bool, dtype: str) -> tuple[Callable[..., None], Any]:
    combine = vmax if takes_max else vadd
    of = elements(dtype)
    real, fill = of.real, of.fill
    load, store, step = of.load, of.store, 16 * of.size
    start, slabs = real(-np.inf if takes_max else 0.0), make_slabs(counts_padding)

    def kernel(begin: int, end: int, src: int, dst: int, table: int, period: int, tail: int) -> None:
        depth, out_depth, window_d, stride_d, step_d, left_d = dimension(table)
        height, out_height, window_h, stride_h, step_h, left_h = dimension(table + DIM)
        width, out_width, window_w, stride_w, step_w, left_w = dimension(table + 2 * DIM)
        block, out_d, out_h = row_of(begin, out_depth, out_height)
        for item in range(begin, end):
            first_h = out_h * stride_h - left_h
            first_d = out_d * stride_d - left_d
            from_d, to_d = inside(first_d, step_d, window_d, depth)
            from_h, to_h = inside(first_h, step_h, window_h, height)
            lanes = tail if block % period == period - 1 else 16
            target = dst + step * item * out_width
            for w in range(out_width):
                first_w = w * stride_w - left_w
                from_w, to_w = inside(first_w, step_w, window_w, width)
                value = fill(start)
                for d in range(from_d, to_d):
                    plane = (block * depth + first_d + d * step_d) * height + first_h
                    for h in range(from_h, to_h):
                        line = src + step * ((plane + h * step_h) * width + first_w)
                        at = line + step * step_w * from_w
                        while at < line + step * step_w * to_w:
                            value = combine(load(at), value)
                            at += step * step_w
                if not takes_max:
                    count = window_d * window_h * window_w
                    if not counts_padding:
                        count = (to_d - from_d) * (to_h - from_h) * (to_w - from_w)
                    value = vdiv(value, fill(real(max(1, count * slabs(table, out_d)))))
                store(target + step * w, vkeep(value, lanes))
            block, out_d, out_h = next_row(block, out_d, out_h, out_depth, out_height)

    return kernel, types.void(*[types.int64] * 7)


def _rows(takes_max: bool, counts_padding: bool, dtype: str) -> tuple[Callable[..., None], Any]:
    combine = vmax if takes_max else vadd
    of = elements(dtype)
    size, real, fill = of.size, of.real, of.fill
    store_part, count_inside = of.store_part, vcount_inside if real is np.float32 else dcount_inside
    seen_inside, see = load_inside(dtype), make_see(dtype)
    start, slabs = real(-np.inf if takes_max else 0.0), make_slabs(counts_padding)

    def kernel(begin: int, end: int, src: int, dst: int, table: int) -> None:
        depth, out_depth, window_d, stride_d, step_d, left_d = dimension(table)
        height, out_height, window_h, stride_h, step_h, left_h = dimension(table + DIM)
        width, out_width, window_w, stride_w, step_w, left_w = dimension(table + 2 * DIM)
        nothing = fill(start)
        channel, out_d, out_h = row_of(begin, out_depth, out_height)
        for item in range(begin, end):
            first_h = out_h * stride_h - left_h
            first_d = out_d * stride_d - left_d
            from_d, to_d = inside(first_d, step_d, window_d, depth)
            from_h, to_h = inside(first_h, step_h, window_h, height)
            for w in range(0, out_width, 16):
                first_w = w * stride_w - left_w
                value, other = nothing, nothing
                for d in range(from_d, to_d):
                    plane = (channel * depth + first_d + d * step_d) * height + first_h
                    begin_h = src + size * width * (plane + from_h * step_h)
                    end_h = src + size * width * (plane + to_h * step_h)
                    index = first_w
                    last = first_w + (window_w - 1) * step_w
                    down = size * width * step_h
                    # Columns outermost: what is inside of a row is the same for each row of the window.
                    while index < last and stride_w == 2 and step_w == 1:
                        line = begin_h
                        while line < end_h:
                            low = seen_inside(line, index, width, nothing)
                            high = seen_inside(line, index + 16, width, nothing)
                            value = combine(veven(low, high), value)
                            other = combine(vodd(low, high), other)
                            line += down
                        index += 2
                    while index <= last and stride_w == 1:
                        line = begin_h
                        while line < end_h:
                            value = combine(seen_inside(line, index, width, nothing), value)
                            line += down
                        index += step_w
                    while index <= last:
                        line = begin_h
                        while line < end_h:
                            value = combine(see(line, index, stride_w, width, nothing), value)
                            line += down
                        index += step_w
                value = combine(value, other)
                if not takes_max:
                    count = fill(real(window_d * window_h * window_w * slabs(table, out_d)))
                    if not counts_padding:
                        count = fill(real(0.0))
                        index = first_w
                        while index < first_w + window_w * step_w:
                            count = vadd(count, count_inside(index, stride_w, width))
                            index += step_w
                        seen = (to_d - from_d) * (to_h - from_h) * slabs(table, out_d)
                        count = vmul(count, fill(real(seen)))
                        count = vmax(count, fill(real(1.0)))
                    value = vdiv(value, count)
                store_part(dst + size * (item * out_width + w), value, min(16, out_width - w))
            channel, out_d, out_h = next_row(channel, out_d, out_h, out_depth, out_height)

    return kernel, types.void(*[types.int64] * 5)


def _whole(takes_max: bool, counts_padding: bool, dtype: str) -> tuple[Callable[..., None], Any]:
    combine = vmax if takes_max else vadd
    of = elements(dtype)
    size, real, fill = of.size, of.real, of.fill
    load, store_one, step, seen_inside = of.load, of.store_one, 16 * of.size, load_inside(dtype)
    start = real(-np.inf if takes_max else 0.0)

    def kernel(begin: int, end: int, src: int, dst: int, length: int) -> None:
        nothing = fill(start)
        for item in range(begin, end):
            line = src + size * item * length
            first, second, third, fourth = nothing, nothing, nothing, nothing
            at = 0
            while at + 64 <= length:
                first = combine(load(line + size * at), first)
                second = combine(load(line + size * at + step), second)
                third = combine(load(line + size * at + 2 * step), third)
                fourth = combine(load(line + size * at + 3 * step), fourth)
                at += 64
            while at < length:
                first = combine(seen_inside(line, at, length, nothing), first)
                at += 16
            value = combine(combine(first, second), combine(third, fourth))
            if takes_max:
                store_one(dst + size * item, fill(vmax_lane(value)))
            else:
                store_one(dst + size * item, fill(vsum(value) / real(length)))

    return kernel, types.void(*[types.int64] * 5)
