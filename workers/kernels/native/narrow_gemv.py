"""Product of some rows of floats by a matrix of f16 or bf16, batched: elements become floats in registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...desc.data_type import item_size
from .compiler import types
from .narrow_results import make_results
from .narrow_sums import add_rows, sum_blocks, sum_columns, sum_packed
from .vec import iload, vset, vstore

#: ISA level -> sums at once, each of them a vector of 16: they fill half of the registers at most. On lower levels
#: conversions need the registers: products use `narrow_gemm`.
_SUMS: Final = {"x86-64-v4": 8, "x86-64-v3": 4}
#: ISA levels that sum several blocks of packed columns together for so many rows, as `gemv` does.
_IN_STREAMS: Final = ("x86-64-v3",)
_FEW: Final = 2


def make(
    isa: str, order: str, heights: tuple[int, ...], right: str, bias: str, dst: str
) -> tuple[Callable[..., None], Any]:
    """Return the kernel for a matrix in an ``order``: "packed", "rows" or "columns"; see `narrow_columns`.

    Tiles of packed ones have ``heights`` rows; other orders take one row. ``right``, ``bias`` ("": none) and ``dst`` are data
    types.

    Arguments, distances in bytes: addresses of the left rows (float32, adjacent inputs), the right matrices, bias, room for
    sums (columns up to a multiple of 16, of each row of each product), dst, residual (0: none); a table of (left, right,
    dst, sums) offsets of each product of the batch; rows of a product, its tiles, the rows of the first ones, and how many
    these are: the others have a row less; K, columns of dst and those of an item of work, a multiple of 16;
    the distances left_row, block (from 16 columns to the next 16, if packed) and step (from row to row, or from column to
    column in columns); and the lower bounds before and after the residual is added. One item of work is some columns of
    one product.
    """
    sums_at_once = _SUMS.get(isa, 1)
    if order == "packed":
        compute = _packed(sums_at_once, heights, right, isa in _IN_STREAMS and max(heights) <= _FEW)
    else:
        compute = {"rows": _rows, "columns": _columns}[order](sums_at_once, heights, right)
    write = make_results(bias, dst)
    size, bias_size = item_size(dst), item_size(bias or "f32")

    def gemv(
        begin: int, end: int, left: int, factors: int, biases: int, sums: int, to: int, residual: int, batch_table: int,
        M: int, tiles: int, height: int, large: int, K: int, columns: int, part: int, left_row: int, block: int, step: int,
        low: float, bound: float,
    ) -> None:  # fmt: skip
        parts = (columns + part - 1) // part
        before, after = vset(np.float32(low)), vset(np.float32(bound))
        sums_row = (columns + 15) // 16 * 64
        for item in range(begin, end):
            product = batch_table + item // parts * 32
            first = item % parts * part
            count = min(part, columns - first)
            at = sums + iload(product + 24) + first * 4
            compute(left + iload(product), left_row, factors + iload(product + 8), first, count, tiles, height, large, K,
                    block, step, at, sums_row)  # fmt: skip
            place = iload(product + 16) + first * size
            added = residual
            if residual != 0:
                added = residual + place
            write(
                at, sums_row, 64, biases + first * bias_size, to + place, added, columns * size, M, count, before, after
            )

    return gemv, types.void(*[types.int64] * 19, types.float64, types.float64)


def _packed(sums_at_once: int, heights: tuple[int, ...], dtype: str, in_streams: bool) -> Callable[..., None]:
    total = sum_packed(heights, sums_at_once, dtype)
    several = sum_blocks(heights if in_streams else (1,), sums_at_once if in_streams else 1, dtype)

    def compute(
        left: int, left_row: int, right: int, first: int, count: int, tiles: int, height: int, large: int, K: int,
        block: int, step: int, to: int, to_row: int,
    ) -> None:  # fmt: skip
        begun = 0
        if in_streams:
            # These rows are one tile.
            width = sums_at_once // height * 16
            begun = count // width * width
            for j in range(0, begun, width):
                at = right + (first + j) // 16 * block
                several(height, left, left_row, at, block, K, to + j * 4, to_row)
        for j in range(begun, count, 16):
            factors = right + (first + j) // 16 * block
            for tile in range(tiles):
                row = tile * height - max(0, tile - large)
                rows = height - int(tile >= large)
                total(rows, left + row * left_row, left_row, factors, K, to + j * 4 + row * to_row, to_row)

    return compute


def _rows(sums_at_once: int, heights: tuple[int, ...], dtype: str) -> Callable[..., None]:
    several, one, size = add_rows(sums_at_once, dtype), add_rows(1, dtype), item_size(dtype)

    def compute(
        left: int, left_row: int, right: int, first: int, count: int, tiles: int, height: int, large: int, K: int,
        block: int, step: int, to: int, to_row: int,
    ) -> None:  # fmt: skip
        for j in range(0, count, 16):
            vstore(to + j * 4, vset(np.float32(0)))
        at = right + first * size
        for k in range(0, K - sums_at_once + 1, sums_at_once):
            several(left + k * 4, at + k * step, step, to, count)
        for k in range(K // sums_at_once * sums_at_once, K):
            one(left + k * 4, at + k * step, step, to, count)

    return compute


def _columns(sums_at_once: int, heights: tuple[int, ...], dtype: str) -> Callable[..., None]:
    several, one = sum_columns(sums_at_once, dtype), sum_columns(1, dtype)

    def compute(
        left: int, left_row: int, right: int, first: int, count: int, tiles: int, height: int, large: int, K: int,
        block: int, step: int, to: int, to_row: int,
    ) -> None:  # fmt: skip
        at = right + first * step
        whole = count // sums_at_once * sums_at_once
        for j in range(0, whole, sums_at_once):
            several(left, at + j * step, step, K, to + j * 4)
        for j in range(whole, count):
            one(left, at + j * step, step, K, to + j * 4)

    return compute
