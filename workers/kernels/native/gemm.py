"""Matrix product of rows, in place or packed, and packed or row-major columns into a row-major destination, batched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types

from .reduce_tile import NO_RESIDUAL, OPEN, TileShape, make_tile
from .vec import iload


def make(isa: str, positions: int, blocks: int, rows: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel for tiles of ``positions`` rows, or one row less, and ``blocks`` vectors of 16 columns.

    With ``rows``, the inputs of a row of the left matrix are adjacent; else those of a tile's rows are.

    Arguments, distances in bytes: addresses of the left matrix, the right one, bias (0: none), dst, residual (0: none);
    a table of (left, right, dst) offsets of each product of the batch, and the step (0, K, 0) of a tile; then the tiles
    of a product, and how many of them, the first ones, have ``positions`` rows; columns of dst, strips of tiles and
    tiles a strip; the distances left_row, left_lane and left_lane_less (from one input to the next in a tile of
    ``positions`` rows and in one with a row less; without ``rows``), right_block (from 16 columns to the next 16),
    right_row (from one k to the next), dst_row; and the lower bounds before and after the residual is added. One item of
    work is a strip of tiles for ``blocks`` vectors of columns of one product.
    """
    wide, narrow, wide_less, narrow_less = (
        make_tile(_shape(height, width, rows)) for height in (positions, max(1, positions - 1)) for width in (blocks, 1)
    )

    always_large = positions == 1

    def gemm(
        begin: int, end: int, left: int, right: int, bias: int, dst: int, residual: int, batch_table: int, step: int,
        tiles: int, large: int, columns: int, strips: int, strip_tiles: int, left_row: int, left_lane: int,
        left_lane_less: int, right_block: int, right_row: int, dst_row: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        vectors = (columns + 15) // 16
        parts = (vectors + blocks - 1) // blocks
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
            factors = right + iload(product + 8) + first * right_block
            source = left + iload(product)
            target = dst + iload(product + 16) + first * 64
            rest = min(blocks, vectors - first)
            width = blocks
            if blocks > 1 and rest < blocks:
                width = 1
            for number in range(strip * strip_tiles, min(tiles, (strip + 1) * strip_tiles)):
                row = number * positions - max(0, number - large)
                at = source + row * left_row
                to = target + row * dst_row
                for j in range(0, rest, width):
                    biases = bias + (first + j) * 64
                    count = columns - (first + j) * 16
                    biased = count
                    if bias == 0:
                        biased = 0
                    column = factors + j * right_block
                    if always_large or number < large:
                        if width == blocks:
                            wide(1, step, at, left_row, column, right_block, right_row, 0, to + j * 64, 64, dst_row,
                                 left_lane, biases, biased, count, to_residual, low32, bound32)  # fmt: skip
                        else:
                            narrow(1, step, at, left_row, column, right_block, right_row, 0, to + j * 64, 64, dst_row,
                                   left_lane, biases, biased, count, to_residual, low32, bound32)  # fmt: skip
                    elif width == blocks:
                        wide_less(1, step, at, left_row, column, right_block, right_row, 0, to + j * 64, 64, dst_row,
                                  left_lane_less, biases, biased, count, to_residual, low32, bound32)  # fmt: skip
                    else:
                        narrow_less(1, step, at, left_row, column, right_block, right_row, 0, to + j * 64, 64, dst_row,
                                    left_lane_less, biases, biased, count, to_residual, low32, bound32)  # fmt: skip

    return gemm, types.void(*[types.int64] * 20, types.float64, types.float64)


def _shape(positions: int, blocks: int, rows: bool) -> TileShape:
    if rows:
        return TileShape((1,) * positions, blocks, 4, 4, "keep")
    return TileShape((positions,), blocks, 4, OPEN, "keep")
