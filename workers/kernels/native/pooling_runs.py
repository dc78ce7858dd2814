"""Pool windows that are runs of many elements of a row, by whole vectors: one window after the other.

A row has ``count`` windows, which move by ``stride`` elements and end in it. A work item is a window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .elements import elements
from .vec import vadd, vmax, vmax_lane, vsum


def make(isa: str, algorithm: str, dtype: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for ``max`` or ``avg`` on a data type, and its signature. Sizes are in elements."""
    takes_max = algorithm == "max"
    combine = vmax if takes_max else vadd
    of = elements(dtype)
    size, real, fill = of.size, of.real, of.fill
    load, load_part, store_one, step = of.load, of.load_part, of.store_one, 16 * of.size
    start = real(-np.inf if takes_max else 0.0)

    def kernel(begin: int, end: int, src: int, dst: int, width: int, count: int, window: int, stride: int) -> None:
        nothing = fill(start)
        row = begin // count
        column = begin - row * count
        for item in range(begin, end):
            line = src + size * (row * width + column * stride)
            # The last vector of a maximum may begin in the one before it; that of a sum is a part of one.
            first, second, third, fourth = nothing, nothing, nothing, nothing
            at = 0
            while at + 64 <= window:
                first = combine(load(line + size * at), first)
                second = combine(load(line + size * at + step), second)
                third = combine(load(line + size * at + 2 * step), third)
                fourth = combine(load(line + size * at + 3 * step), fourth)
                at += 64
            while at + 16 <= window:
                first = combine(load(line + size * at), first)
                at += 16
            if at < window:
                if takes_max:
                    second = combine(load(line + size * (window - 16)), second)
                else:
                    second = combine(load_part(line + size * at, window - at), second)
            value = combine(combine(first, second), combine(third, fourth))
            if takes_max:
                store_one(dst + size * item, fill(vmax_lane(value)))
            else:
                store_one(dst + size * item, fill(vsum(value) / real(window)))
            column += 1
            if column == count:
                column = 0
                row += 1

    return kernel, types.void(*[types.int64] * 8)
