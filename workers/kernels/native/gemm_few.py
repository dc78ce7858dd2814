"""Product of few rows by many, or into few columns, in which the inputs of each are adjacent: a result is a sum over lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .compiler import types
from .dot_tile import make_dot_tiles
from .vec import iload

#: ISA level -> the many of a tile by the few of one, from one on: sums of 16 vectors, or of 4, stay in registers. Four rows of
#: each factor at multiples of 4 KiB fill the ways of a first-level cache.
_TILES: Final = {"x86-64-v4": (16, 8, 4, 4), "x86-64-v3": (4, 2)}


def make(isa: str, few: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for ``few`` "rows" or "columns" of dst, and many of the other.

    Arguments, distances in bytes: addresses of the left matrix, of the right one transposed, bias (0: none), dst and residual
    (0: none); a table of the (left, right, dst) offsets of each product of the batch, and zeros; rows and columns of dst, those
    of the many of an item of work, a multiple of 16, and K; the distances from row to row of left, of right and of dst; and the
    lower bounds before and after the residual is added.
    One item of work is some of the many of one product.
    """
    beside = _TILES.get(isa, (2,))
    total, most = beside[0], len(beside)
    one_of, two_of, more_of = beside[0], beside[min(1, most - 1)], beside[-1]
    is_rows = few == "rows"
    shapes = {}
    for group, size in enumerate(beside, 1):
        for name, many in ((2 * group, size), (2 * group + 1, 1)):
            shapes[name] = (group, many) if is_rows else (many, group)
    tile = make_dot_tiles(shapes)

    def width_of(high: int) -> int:
        if high == 1:
            return one_of
        if high == 2:
            return two_of
        return more_of

    def gemm_few(
        begin: int, end: int, left: int, right: int, bias: int, dst: int, residual: int, batch_table: int, zeros: int,
        rows: int, columns: int, part: int, K: int, left_row: int, right_row: int, dst_row: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        count, many = columns, rows
        if is_rows:
            count, many = rows, columns
        parts = (many + part - 1) // part
        to_residual = residual - dst
        low32, bound32 = np.float32(low), np.float32(bound)
        for item in range(begin, end):
            product = batch_table + item // parts * 24
            at_left, at_right, onto = left + iload(product), right + iload(product + 8), dst + iload(product + 16)
            last = min(many, (item % parts + 1) * part)
            # Those of a block stay in the cache until all of the few have been multiplied by them.
            for block in range(item % parts * part, last, total):
                for done in range(0, count, most):
                    high = min(most, count - done)
                    wide = width_of(high)
                    one = block
                    end_of_block = min(last, block + total)
                    while one < end_of_block:
                        number, size = 2 * high, wide
                        if one + wide > end_of_block:
                            number, size = 2 * high + 1, 1
                        row, column = one, done
                        if is_rows:
                            row, column = done, one
                        biases = zeros
                        if bias != 0:
                            biases = bias + column * 4
                        of_row, of_column = at_left + row * left_row, at_right + column * right_row
                        to = onto + row * dst_row + column * 4
                        tile(number, of_row, left_row, of_column, right_row, K, to, dst_row, biases, residual, to_residual,
                             low32, bound32)  # fmt: skip
                        one += size

    return gemm_few, types.void(*[types.int64] * 16, types.float64, types.float64)
