"""Write products of matrices, a row of outputs and phases for each position, to dst: runs of as many elements as a stride.

A *phase* is the elements of dst that are a stride apart. A work item is a row of a channel of dst. The phases of a position are
neighbours in a product and in dst, so a stride of any length is one loop over vectors, and nothing is interleaved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import functions
from .compiler import types
from .first_lanes import vstore_part
from .vec import vadd, vbroadcast, vload, vset, vstore


def make(isa: str, chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of products (images, positions, channels, phases), bias (0: none), dst and the source of a binary
    post-op; channels; slabs and rows of dst that are written, and the number of the first in padded dst; the strides in slabs,
    rows and columns; the first slab and the first row of positions, and their rows and columns; the phase of the first column of
    dst; phases; bytes of a position, and of all positions of an image; the width of dst, and its bytes of a slab, a channel and
    an image. Up to 15 floats behind the products are read.
    """
    finish = functions.post_ops_part(chain, "f32")
    # What is added may be in the memory of dst, of which no element may be stored before it is read.
    whole = all(kind == "eltwise" for kind, *_ in chain)

    def runs(
        begin: int, end: int, src: int, bias: int, dst: int, other: int, channels: int, slabs: int, rows: int,
        first_slab: int, first_row: int, stride_d: int, stride_h: int, stride_w: int, from_slab: int, from_row: int,
        from_rows: int, from_columns: int, lead: int, phases: int, position: int, volume: int, width: int, slab_bytes: int,
        channel_bytes: int, image_bytes: int,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            rest = item // rows
            row = item - rest * rows
            number = rest // slabs
            slab = rest - number * slabs
            image = number // channels
            channel = number - image * channels
            z = (first_slab + slab) // stride_d
            y = (first_row + row) // stride_h
            part = (first_slab + slab - z * stride_d) * stride_h + first_row + row - y * stride_h
            line = src + image * volume + ((z - from_slab) * from_rows + y - from_row) * from_columns * position
            line += 4 * (channel * phases + part * stride_w)
            to = image * image_bytes + channel * channel_bytes + slab * slab_bytes + 4 * row * width
            start = vset(np.float32(0.0))
            if bias != 0:
                start = vbroadcast(bias + 4 * channel)
            # Columns from the first on whose runs lie in dst with a whole vector
            begin_whole = end_whole = from_columns
            if whole and stride_w <= 16:
                begin_whole = int(lead > 0)
                end_whole = min(from_columns, (width + lead - 16) // stride_w + 1)
            column = 0
            while column < from_columns:
                if begin_whole == column < end_whole:
                    source = line + column * position
                    at = to + 4 * (column * stride_w - lead)
                    for _ in range(column, end_whole):
                        vstore(dst + at, finish(vadd(vload(source), start), other + at, 16))
                        source += position
                        at += 4 * stride_w
                    column = end_whole
                    continue
                first = max(0, column * stride_w - lead)
                source = line + column * position + 4 * (first + lead - column * stride_w)
                count = min(width, (column + 1) * stride_w - lead) - first
                for index in range(0, count, 16):
                    at, left = to + 4 * (first + index), count - index
                    value = finish(vadd(vload(source + 4 * index), start), other + at, min(16, left))
                    if left >= 16 or (whole and first + index + 16 <= width):
                        # The next position overwrites what is behind this one: stores of part of a vector are slow.
                        vstore(dst + at, value)
                    else:
                        vstore_part(dst + at, value, left)
                column += 1

    return runs, types.void(*[types.int64] * 26)
