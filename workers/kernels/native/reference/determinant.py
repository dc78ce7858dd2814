"""Multiply the pivots of matrices; an item is a matrix, with a copy of its own in the scratchpad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .data_types import store
from .epilogue import element
from .scalars import read_f64, write_f64
from .tensor import base, dim, dtype, where


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, scratch, operands)."""

    def determinant(begin: int, end: int, src: int, dst: int, scratch: int, operands: Any) -> None:
        rows = dim(src, 1)
        for item in range(begin, end):
            a = scratch + 8 * item * rows * rows
            for place in range(rows * rows):
                write_f64(a + 8 * place, element(operands, src, item * rows * rows + place))
            total = 1.0
            for column in range(rows):
                if total != 0.0:
                    best, chosen = -1.0, column
                    for row in range(column, rows):
                        value = abs(read_f64(a + 8 * (row * rows + column)))
                        if value > best or value != value:
                            best, chosen = value, row
                    if chosen != column:
                        total = -total
                        for place in range(column, rows):
                            mine, other = a + 8 * (column * rows + place), a + 8 * (chosen * rows + place)
                            kept = read_f64(mine)
                            write_f64(mine, read_f64(other))
                            write_f64(other, kept)
                    pivot = read_f64(a + 8 * (column * rows + column))
                    if pivot == 0.0:
                        total = 0.0
                    else:
                        total *= pivot
                        for row in range(column + 1, rows):
                            factor = read_f64(a + 8 * (row * rows + column)) / pivot
                            for place in range(column + 1, rows):
                                at = a + 8 * (row * rows + place)
                                write_f64(at, read_f64(at) - factor * read_f64(a + 8 * (column * rows + place)))
            store(base(operands, dst) + where(dst, item), dtype(dst), total)

    return determinant, types.void(*[types.int64] * 5, types.voidptr)
