"""Combine the slabs that windows in three dimensions see: elements in the same place, of whole slabs, as one run each.

The result has a slab for each place of the windows along the depth, of maxima or of sums. Windows in two dimensions pool it
further, with the same table: that of `pooling`. A work item is one slab of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import inlined
from .first_lanes import vstore_part
from .pooling import SLABS, dimension, inside
from .vec import vadd, vload, vload_part, vmax, vset, vstore


def make(isa: str, algorithm: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for ``max`` or ``sum`` of f32, and its signature. ``elements`` are those of a slab."""
    combine, start = (vmax, -np.inf) if algorithm == "max" else (vadd, 0.0)

    @inlined
    def combined(at: int, behind: int, count: int, nothing: Any) -> Any:
        value = nothing
        for place in range(at, at + count * behind, behind):
            value = combine(vload(place), value)
        return value

    def kernel(begin: int, end: int, src: int, dst: int, table: int, elements: int) -> None:
        depth, out_depth, window, stride, step, left = dimension(table + SLABS)
        nothing, whole = vset(np.float32(start)), elements & -16
        behind = 4 * elements * step
        for item in range(begin, end):
            image = item // out_depth
            first = (item - image * out_depth) * stride - left
            low, high = inside(first, step, window, depth)
            count = high - low
            line = src + 4 * elements * (image * depth + first + low * step)
            target = dst + 4 * elements * item
            for at in range(0, 4 * whole, 64):
                vstore(target + at, combined(line + at, behind, count, nothing))
            if whole < elements:
                # The last elements with those before them: stores of part of a vector are slow.
                at = 4 * (elements - 16)
                if whole > 0:
                    vstore(target + at, combined(line + at, behind, count, nothing))
                else:
                    value = nothing
                    for place in range(line, line + count * behind, behind):
                        value = combine(vload_part(place, elements), value)
                    vstore_part(target, value, elements)

    return kernel, types.void(*[types.int64] * 6)
