"""Pool windows of row-major planes, plane by plane: 16 columns of windows after the others.

The rows of a window are combined into a few vectors, which hold all columns that 16 windows see. Each column of the windows is
then a permutation of these, known when the kernel is compiled. All rows of 16 columns have one mask, and one vector of divisors
unless windows leave the plane above or below. The geometry is the table of `pooling`; windows are flat. A work item is a plane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import inlined
from .elements import elements
from .pooling import DIM, dimension, inside, make_slabs
from .pooling_columns import make_columns
from .vec import vadd, vcount_inside, vdiv, vmax, vmul, vset


def make(
    isa: str, algorithm: str, window: int, stride: int, vectors: int, step: int = 0
) -> tuple[Callable[..., None], Any]:
    """Return the kernel for ``max``, ``avg_include_padding`` or ``avg_exclude_padding`` of f32, and its signature.

    A window has ``window`` columns, and moves by ``stride``; ``vectors`` hold what 16 windows of a row see, or all of fewer.
    The columns are ``step`` apart, and its rows as the table says; both have no gaps if it is 0.
    """
    takes_max, counts_padding = algorithm == "max", algorithm == "avg_include_padding"
    start = np.float32(-np.inf if takes_max else 0.0)
    of = elements("f32")
    store, store_part = of.store, of.store_part
    slabs = make_slabs(counts_padding)
    columns = make_columns("f32", stride, window, takes_max, vectors, max(1, step))
    none, take_inside, apart = columns.none, columns.take_inside, columns.apart

    @inlined
    def divisor(index: int, width: int, rows: int) -> Any:
        """Return what the sums of the windows from ``index`` on are divided by, of which each sees ``rows`` rows."""
        inside_of_row = vset(np.float32(window))
        if not counts_padding:
            inside_of_row = vset(np.float32(0.0))
            for column in range(index, index + window * max(1, step), max(1, step)):
                inside_of_row = vadd(vcount_inside(column, stride, width), inside_of_row)
        return vmax(vmul(inside_of_row, vset(np.float32(rows))), vset(np.float32(1.0)))

    def kernel(begin: int, end: int, src: int, dst: int, table: int) -> None:
        depth = dimension(table)[0]
        height, out_height, window_h, stride_h, step_h, left_h = dimension(table + DIM)
        width, out_width, _, _, _, left_w = dimension(table + 2 * DIM)
        nothing = vset(start)
        down, below = 4 * width, 4 * out_width
        # Up to here a vector may be stored: what is behind a row is stored later, unless it is another range's.
        last = dst + end * out_height * below - 64
        for item in range(begin, end):
            plane, deep = src + item * height * down, slabs(table, item % depth)
            for begin_w in range(0, out_width, 16):
                # The last windows of a row with some of those before them: stores of a part of a vector are slow.
                w = max(0, min(begin_w, out_width - 16))
                index = w * stride - left_w
                whole = divisor(index, width, window_h * deep)
                target = dst + item * out_height * below + 4 * w
                first = -left_h
                for _ in range(out_height):
                    low, high = max(first, 0), min(first + window_h, height)
                    found = none(nothing)
                    line, stop, apart_by = plane + low * down, plane + high * down, down
                    if step:
                        low, high = inside(first, step_h, window_h, height)
                        apart_by = down * step_h
                        line, stop = plane + first * down + low * apart_by, plane + first * down + high * apart_by
                    while line < stop:
                        found = take_inside(found, line, index, width, nothing)
                        line += apart_by
                    value = apart(found)
                    if not takes_max:
                        if counts_padding or high - low == window_h:
                            value = vdiv(value, whole)
                        else:
                            value = vdiv(value, divisor(index, width, max(high - low, 0) * deep))
                    if target <= last:
                        store(target, value)
                    else:
                        store_part(target, value, min(16, out_width))
                    target += below
                    first += stride_h

    return kernel, types.void(*[types.int64] * 5)
