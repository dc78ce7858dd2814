"""Columns of f16 or bf16 as floats, 16 side by side, for tiles that multiply many rows by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .movement import Movement
from .transpose import transposes
from .vec import prefetch

#: Rows of the right matrix that are asked for before they are converted.
_AHEAD: Final = 24


def make_columns(dtype: str, order: str) -> Callable[..., None]:
    """Return the function that converts columns of a data type in an ``order``: "packed", "rows" or "columns".

    Packed ones are 16 side by side already; in rows and columns, the elements of one are adjacent. Its arguments, distances in
    bytes: addresses of the first column and of the result; K, columns up to the end of the matrix, vectors of 16 columns
    that are wanted; the distances block (from 16 columns to the next 16), row (from one k to the next) and column (from one
    column to the next).
    """
    movement = Movement(dtype, "f32")
    move, _, move_padded, _ = movement.intrinsics()
    transpose, _, transpose_pad = transposes(movement)
    size = movement.src_size

    def packed(src: int, to: int, K: int, columns: int, vectors: int, block: int, row: int, column: int) -> None:
        for j in range(vectors):
            for k in range(K):
                move(src + j * block + k * row, to + (j * K + k) * 64)

    def rows(src: int, to: int, K: int, columns: int, vectors: int, block: int, row: int, column: int) -> None:
        whole = min(vectors, columns // 16)
        for k in range(K):
            # Rows are in different pages, which the processor does not foresee.
            prefetch(src + (k + _AHEAD) * row)
            for j in range(whole):
                move(src + k * row + j * 16 * size, to + (j * K + k) * 64)
        if whole < vectors:
            for k in range(K):
                move_padded(src + k * row + whole * 16 * size, to + (whole * K + k) * 64, columns - whole * 16)

    def in_columns(src: int, to: int, K: int, columns: int, vectors: int, block: int, row: int, column: int) -> None:
        for j in range(vectors):
            at, floats = src + j * 16 * column, to + j * K * 64
            count = min(16, columns - j * 16)
            whole = 0
            if count == 16:
                whole = K // 16 * 16
            for k in range(0, whole, 16):
                transpose(at + k * size, column, floats + k * 64, 64)
            for k in range(whole, K, 16):
                transpose_pad(at + k * size, column, floats + k * 64, 64, count, min(16, K - k))

    made: Callable[..., None] = {"packed": packed, "rows": rows, "columns": in_columns}[order]
    return made
