"""Collect the gradients of a pooling's src from those of its dst.

The geometry is the table of `pooling`. ``blocked`` has 16 channels a vector: a work item is a row of src, each of whose
elements asks the windows that see it. ``planes`` is for row-major images: a work item is a channel of an image, to whose
elements each window adds, in order. A number of a winner that is not in its window's part of src adds to nothing.

Shares of windows that see as many elements are added before they are divided; those of others are float64 until they are added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import inlined
from .elements import elements
from .first_lanes import vstore_part
from .pooling import DIM, dimension, inside
from .vec import (
    dload,
    dset,
    dstore,
    fload,
    fstore,
    sload,
    vadd,
    vdiv,
    vkeep,
    vload,
    vload_same,
    vnarrow,
    vset,
    vstore,
    vwiden,
)


def make(isa: str, algorithm: str, part: str) -> tuple[Callable[..., None], Any]:
    """Return a kernel for ``max``, ``avg_include_padding`` or ``avg_exclude_padding``, and its signature."""
    makers = {"blocked": _blocked, "planes": _planes}
    return makers[part](algorithm == "max", algorithm == "avg_include_padding")


@inlined
def _windows(index: int, window: int, stride: int, step: int, left: int, count: int) -> tuple[int, int]:
    """Return the range of windows that may see an element; with dilations, not all of them do."""
    first = index + left - (window - 1) * step
    low = (first + stride - 1) // stride if first > 0 else 0
    return low, min(count, (index + left) // stride + 1)


@inlined
def _seen(first: int, step: int, window: int, size: int) -> int:
    """Return how many elements of src a window sees in a dimension."""
    low, high = inside(first, step, window, size)
    return high - low


def _blocked(takes_max: bool, counts_padding: bool) -> tuple[Callable[..., None], Any]:
    def kernel(
        begin: int, end: int, diff_src: int, diff_dst: int, workspace: int, table: int, period: int, tail: int
    ) -> None:
        depth, out_depth, window_d, stride_d, step_d, left_d = dimension(table)
        height, out_height, window_h, stride_h, step_h, left_h = dimension(table + DIM)
        width, out_width, window_w, stride_w, step_w, left_w = dimension(table + 2 * DIM)
        zero = vset(np.float32(0.0))
        whole = window_d * window_h * window_w
        for item in range(begin, end):
            rest = item // height
            h = item - rest * height
            block = rest // depth
            d = rest - block * depth
            lanes = tail if block % period == period - 1 else 16
            from_d, to_d = _windows(d, window_d, stride_d, step_d, left_d, out_depth)
            from_h, to_h = _windows(h, window_h, stride_h, step_h, left_h, out_height)
            for w in range(width):
                from_w, to_w = _windows(w, window_w, stride_w, step_w, left_w, out_width)
                total, parts = zero, dset(0.0)
                for od in range(from_d, to_d):
                    first_d = od * stride_d - left_d
                    at_d = (d - first_d) // step_d
                    if at_d * step_d != d - first_d:
                        continue
                    for oh in range(from_h, to_h):
                        first_h = oh * stride_h - left_h
                        at_h = (h - first_h) // step_h
                        if at_h * step_h != h - first_h:
                            continue
                        line = 64 * (((block * out_depth + od) * out_height + oh) * out_width)
                        for ow in range(from_w, to_w):
                            first_w = ow * stride_w - left_w
                            at_w = (w - first_w) // step_w
                            if at_w * step_w != w - first_w:
                                continue
                            place = line + 64 * ow
                            if takes_max:
                                number = (at_d * window_h + at_h) * window_w + at_w
                                total = vadd(total, vload_same(diff_dst + place, workspace + place, number))
                            elif counts_padding:
                                total = vadd(total, vload(diff_dst + place))
                            else:
                                count = _seen(first_d, step_d, window_d, depth)
                                count *= _seen(first_h, step_h, window_h, height)
                                count *= _seen(first_w, step_w, window_w, width)
                                if count == whole:
                                    total = vadd(total, vload(diff_dst + place))
                                else:
                                    parts = vadd(parts, vdiv(vwiden(vload(diff_dst + place)), dset(float(count))))
                if counts_padding:
                    total = vdiv(total, vset(np.float32(whole)))
                elif not takes_max:
                    total = vnarrow(vadd(parts, vdiv(vwiden(total), dset(float(whole)))))
                vstore(diff_src + 64 * (item * width + w), vkeep(total, lanes))

    return kernel, types.void(*[types.int64] * 8)


def _planes(takes_max: bool, counts_padding: bool) -> tuple[Callable[..., None], Any]:
    is_wide = not (takes_max or counts_padding)
    of = elements("f64" if is_wide else "f32")
    unit, load, load_part, store, store_part = of.size, of.load, of.load_part, of.store, of.store_part

    @inlined
    def add(target: int, share: float) -> None:
        if is_wide:
            dstore(target, dload(target) + share)
        else:
            fstore(target, fload(target) + share)

    @inlined
    def mean(sums: Any, whole: Any) -> Any:
        return vnarrow(sums) if is_wide else vdiv(sums, whole)

    def kernel(begin: int, end: int, diff_src: int, diff_dst: int, workspace: int, table: int, scratch: int) -> None:
        depth, out_depth, window_d, stride_d, step_d, left_d = dimension(table)
        height, out_height, window_h, stride_h, step_h, left_h = dimension(table + DIM)
        width, out_width, window_w, stride_w, step_w, left_w = dimension(table + 2 * DIM)
        nothing = of.fill(of.real(0.0))
        size = depth * height * width
        whole = window_d * window_h * window_w
        divisor = vset(np.float32(whole))
        area = window_h * window_w
        for item in range(begin, end):
            plane = diff_src + 4 * item * size
            # Each range of items has its own memory, which stays in the cache.
            sums = scratch + unit * begin * size if is_wide else plane
            for at in range(0, size & -16, 16):
                store(sums + unit * at, nothing)
            store_part(sums + unit * (size & -16), nothing, size & 15)
            place = 4 * item * out_depth * out_height * out_width
            for od in range(out_depth):
                first_d = od * stride_d - left_d
                from_d, to_d = inside(first_d, step_d, window_d, depth)
                for oh in range(out_height):
                    first_h = oh * stride_h - left_h
                    from_h, to_h = inside(first_h, step_h, window_h, height)
                    for ow in range(out_width):
                        first_w = ow * stride_w - left_w
                        error = fload(diff_dst + place)
                        if takes_max:
                            number = sload(workspace + place)
                            if number >= 0 and number < whole:
                                at_d = number // area
                                rest = number - at_d * area
                                at_h = rest // window_w
                                w = first_w + (rest - at_h * window_w) * step_w
                                h = first_h + at_h * step_h
                                d = first_d + at_d * step_d
                                if w >= 0 and w < width and h >= 0 and h < height and d >= 0 and d < depth:
                                    add(plane + 4 * ((d * height + h) * width + w), error)
                        else:
                            from_w, to_w = inside(first_w, step_w, window_w, width)
                            share = error
                            if is_wide:
                                share = float(error) / max(1, (to_d - from_d) * (to_h - from_h) * (to_w - from_w))
                            for d in range(from_d, to_d):
                                for h in range(from_h, to_h):
                                    line = ((first_d + d * step_d) * height + first_h + h * step_h) * width + first_w
                                    line = sums + unit * line
                                    for w in range(from_w, to_w):
                                        add(line + unit * w * step_w, share)
                        place += 4
            if not takes_max:
                for at in range(0, size & -16, 16):
                    vstore(plane + 4 * at, mean(load(sums + unit * at), divisor))
                rest = load_part(sums + unit * (size & -16), size & 15)
                vstore_part(plane + 4 * (size & -16), mean(rest, divisor), size & 15)

    return kernel, types.void(*[types.int64] * 7)
