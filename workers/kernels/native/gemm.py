"""Matrix product of packed rows and packed or row-major columns into a row-major destination, batched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types

from .reduce_tile import NO_RESIDUAL, TileShape, make_tile
from .vec import iload


def make(isa: str, positions: int, blocks: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel for panels of ``positions`` rows and ``blocks`` vectors of 16 columns.

    Arguments, distances in bytes: addresses of the packed left matrix (panels of (K, positions)), the right one, bias
    (0: none), dst, residual (0: none); a table of (left, right, dst) offsets of each product of the batch, and
    the step (0, K, 0) of a tile; then rows and columns of dst, strips of panels and panels a strip, the distances
    panel, right_block (from 16 columns to the next 16), right_row (from one k to the next), dst_row; and the lower
    bounds before and after the residual is added. One item of work is a strip of panels for ``blocks`` vectors of
    columns of one product.
    """
    wide = make_tile(TileShape((positions,), blocks, 4, 4 * positions, "keep"))
    single = make_tile(TileShape((positions,), 1, 4, 4 * positions, "keep"))

    def gemm(
        begin: int, end: int, left: int, right: int, bias: int, dst: int, residual: int, batch_table: int, step: int,
        rows: int, columns: int, strips: int, strip_panels: int, panel: int, right_block: int, right_row: int,
        dst_row: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        vectors = (columns + 15) // 16
        parts = (vectors + blocks - 1) // blocks
        panels = (rows + positions - 1) // positions
        to_residual = residual - dst
        if residual == 0:
            to_residual = NO_RESIDUAL
        low32 = np.float32(low)
        bound32 = np.float32(bound)
        for item in range(begin, end):
            part = item % parts
            strip = (item // parts) % strips
            product = batch_table + item // (parts * strips) * 24
            first = part * blocks
            count = columns - first * 16
            factors = right + iload(product + 8) + first * right_block
            biases = bias + first * 64
            biased = count
            if bias == 0:
                biased = 0
            source = left + iload(product)
            target = dst + iload(product + 16) + first * 64
            rest = min(blocks, vectors - first)
            for number in range(strip * strip_panels, min(panels, (strip + 1) * strip_panels)):
                at = source + number * panel
                to = target + number * positions * dst_row
                height = rows - number * positions
                if blocks == 1 or rest == blocks:
                    wide(1, step, at, 0, factors, right_block, right_row, 0, to, 64, dst_row, height, biases, biased,
                         count, to_residual, low32, bound32)  # fmt: skip
                else:
                    for j in range(rest):
                        single(1, step, at, 0, factors + j * right_block, right_block, right_row, 0, to + j * 64, 64,
                               dst_row, height, biases + j * 64, biased - j * 16, count - j * 16, to_residual, low32,
                               bound32)  # fmt: skip

    return gemm, types.void(*[types.int64] * 17, types.float64, types.float64)
