"""Pool windows of row-major planes that move by one along rows without padding: few columns, rows of 16 windows at least.

Each element is loaded once for each place in a window, by whole vectors without masks: the last vector of a row begins in the one
before it. The geometry is the table of `pooling`. A work item is one row of the destination.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .elements import elements
from .pooling import DIM, dimension, inside, make_slabs, next_row, row_of
from .vec import vadd, vdiv, vmax


def make(isa: str, algorithm: str, dtype: str, window: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel for ``max``, ``avg_include_padding`` or ``avg_exclude_padding`` on a data type, and its signature.

    A window has ``window`` columns.
    """
    takes_max, counts_padding = algorithm == "max", algorithm == "avg_include_padding"
    of = elements(dtype)
    combine, start = (vmax, -np.inf) if takes_max else (vadd, 0.0)
    size, real, fill, load, store = of.size, of.real, of.fill, of.load, of.store
    slabs = make_slabs(counts_padding)

    def kernel(begin: int, end: int, src: int, dst: int, table: int) -> None:
        depth, out_depth, window_d, stride_d, step_d, left_d = dimension(table)
        height, out_height, window_h, stride_h, step_h, left_h = dimension(table + DIM)
        width, out_width, _, _, _, _ = dimension(table + 2 * DIM)
        down, behind = size * width * step_h, size * width * height * step_d
        known, divisor = 0, fill(real(1.0))
        channel, out_d, out_h = row_of(begin, out_depth, out_height)
        for item in range(begin, end):
            first_d = out_d * stride_d - left_d
            first_h = out_h * stride_h - left_h
            from_d, to_d = inside(first_d, step_d, window_d, depth)
            from_h, to_h = inside(first_h, step_h, window_h, height)
            if not takes_max:
                seen = (to_d - from_d) * (to_h - from_h)
                if counts_padding:
                    seen = window_d * window_h
                seen *= slabs(table, out_d)
                if seen != known:
                    known = seen
                    divisor = fill(real(max(1, seen * window)))
            plane = (channel * depth + first_d + from_d * step_d) * height + first_h + from_h * step_h
            line = src + size * width * plane
            target = dst + size * item * out_width
            for first in range(0, out_width, 16):
                at = size * min(first, out_width - 16)
                value = fill(real(start))
                deep = line + at
                for _ in range(from_d, to_d):
                    place = deep
                    for _ in range(from_h, to_h):
                        for column in range(window):
                            value = combine(load(place + size * column), value)
                        place += down
                    deep += behind
                if not takes_max:
                    value = vdiv(value, divisor)
                store(target + at, value)
            channel, out_d, out_h = next_row(channel, out_d, out_h, out_depth, out_height)

    return kernel, types.void(*[types.int64] * 5)
