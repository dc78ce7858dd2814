"""Copy what each element of a phase of a deconvolution sees of src: rows of a matrix, each of one input channel and tap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .first_lanes import vstore_part
from .vec import vload, vload_inside, vset, vstore


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of src (images and groups, channels, slabs, rows, columns) and of the matrix (images and groups, taps,
    channels, positions); channels of a group, and slabs, rows and columns of src; taps in slabs, rows and columns; slabs, rows
    and columns of positions, and the place in src of the first one for the first tap. Each further tap sees the element before.
    Elements outside of src are 0. One item of work is a row of the matrix.
    """

    def windows(
        begin: int, end: int, src: int, dst: int, channels: int, depth: int, height: int, width: int, taps_d: int,
        taps_h: int, taps_w: int, slabs: int, rows: int, columns: int, first_slab: int, first_row: int, first_column: int,
    ) -> None:  # fmt: skip
        nothing = vset(np.float32(0.0))
        taps = taps_d * taps_h * taps_w
        for item in range(begin, end):
            rest = item // channels
            group = rest // taps
            tap = rest - group * taps
            tap_w = tap % taps_w
            tap_h = tap // taps_w % taps_h
            tap_d = tap // (taps_w * taps_h)
            source = src + 4 * (group * channels + item - rest * channels) * depth * height * width
            to = dst + 4 * item * slabs * rows * columns
            x = first_column - tap_w
            left = slabs * rows * columns
            for slab in range(slabs):
                z = first_slab - tap_d + slab
                for row in range(rows):
                    y = first_row - tap_h + row
                    inside = width if 0 <= z < depth and 0 <= y < height else 0
                    line = source + 4 * (z * height + y) * inside
                    for column in range(0, columns, 16):
                        at = x + column
                        value = nothing
                        if at >= 0 and at + 16 <= inside:
                            value = vload(line + 4 * at)
                        else:
                            value = vload_inside(line, at, inside, nothing)
                        # Stores of whole vectors overwrite rows that are copied later, but none of another item.
                        if column + 16 <= left:
                            vstore(to + 4 * column, value)
                        else:
                            vstore_part(to + 4 * column, value, min(16, columns - column))
                    to += 4 * columns
                    left -= columns

    return windows, types.void(*[types.int64] * 17)
