"""Matrix product of f64, or of integers of one type, with packed or row-major columns, batched; see `gemm` for float32.

Columns are side by side in groups of 16, whatever their type. Products of integers are exact modulo 2**64; the result of s32
saturates, those of the others wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...desc.data_type import item_size
from .compiler import types
from .typed_tile import NOTHING, make_tile
from .vec import iload


def make(isa: str, dtype: str, positions: int, blocks: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel for tiles of ``positions`` rows, or one row less, and ``blocks`` times 16 columns of a data type.

    Arguments, distances in bytes: addresses of the left matrix, the right one, bias (0: none), dst, residual (0: none); a
    table of (left, right, dst) offsets of each product of the batch; K; tiles of a product, and how many of them, the first
    ones, have ``positions`` rows; columns of dst and strips of tiles; the distances left_row, lane (from one input to the
    next), right_block (from 16 columns to the next 16), right_row and dst_row; and the lower bounds of f64 before and after
    the residual is added. One item of work is a strip of tiles, as many as in any other or one less, for ``blocks`` times 16
    columns of one product.
    """
    less = max(1, positions - 1)
    wide, wide_less = make_tile(dtype, positions, blocks, False), make_tile(dtype, less, blocks, False)
    part, part_less = make_tile(dtype, positions, 1, True), make_tile(dtype, less, 1, True)
    size = item_size(dtype)
    always_large = positions == 1

    def gemm(
        begin: int, end: int, left: int, right: int, bias: int, dst: int, residual: int, batch_table: int, K: int,
        tiles: int, large: int, columns: int, strips: int, left_row: int, lane: int, right_block: int, right_row: int,
        dst_row: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        parts = (columns + 16 * blocks - 1) // (16 * blocks)
        to_residual = residual - dst
        if residual == 0:
            to_residual = NOTHING
        for item in range(begin, end):
            first = item % parts * blocks * 16
            strip = item // parts % strips
            product = batch_table + item // (parts * strips) * 24
            factors = right + iload(product + 8) + first // 16 * right_block
            rest = min(blocks * 16, columns - first)
            width = blocks * 16
            if rest < width:
                width = 16
            for number in range(strip * tiles // strips, (strip + 1) * tiles // strips):
                row = number * positions - max(0, number - large)
                at = left + iload(product) + row * left_row
                onto = dst + iload(product + 16) + row * dst_row + first * size
                for j in range(0, rest, width):
                    count = rest - j
                    block, to = factors + j // 16 * right_block, onto + j * size
                    start, started = bias + (first + j) * size, count
                    if bias == 0:
                        # Any memory: nothing is read.
                        start, started = batch_table, 0
                    if always_large or number < large:
                        if rest == blocks * 16:
                            wide(K, at, left_row, lane, block, right_block, right_row, to, dst_row,
                                 start, started, count, to_residual, low, bound)  # fmt: skip
                        else:
                            part(K, at, left_row, lane, block, right_block, right_row, to, dst_row,
                                 start, started, count, to_residual, low, bound)  # fmt: skip
                    elif rest == blocks * 16:
                        wide_less(K, at, left_row, lane, block, right_block, right_row, to, dst_row,
                                  start, started, count, to_residual, low, bound)  # fmt: skip
                    else:
                        part_less(K, at, left_row, lane, block, right_block, right_row, to, dst_row,
                                  start, started, count, to_residual, low, bound)  # fmt: skip

    return gemm, types.void(*[types.int64] * 18, types.float64, types.float64)
