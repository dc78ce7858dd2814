"""Pack rows of row-major matrices into panels (K, rows of a tile), from which a product broadcasts its left factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import types
from .transpose import gather_rows
from .vec import fload, fstore, iload, vload_part, vstore


def make(isa: str, order: str = "rows") -> tuple[Callable[..., None], Any]:
    """Return the kernel for panels of any number of rows up to 16; adjacent are the elements of "rows" or of "columns".

    Arguments: addresses of the matrices, of the panels and of a table with the offset of each matrix; panels of a
    matrix, the rows of the first ones and how many these are: the others have one row less; K; distances in bytes from
    row to row of a matrix (in columns, from column to column), and of the panels from matrix to matrix and for each row (64
    at least more than K floats).
    One item of work is one panel.
    """

    in_rows = order == "rows"

    def pack(
        begin: int, end: int, src: int, dst: int, matrices: int, panels: int, positions: int, large: int, K: int,
        row: int, dst_matrix: int, dst_row: int,
    ) -> None:  # fmt: skip
        whole = K // 16 * 16
        for item in range(begin, end):
            number = item % panels
            first = number * positions - max(0, number - large)
            count = positions
            if number >= large:
                count = positions - 1
            matrix = src + iload(matrices + item // panels * 8)
            to = dst + item // panels * dst_matrix + first * dst_row
            if not in_rows:
                # Stores of 16 overlap here, too.
                for k in range(K):
                    vstore(to + k * count * 4, vload_part(matrix + first * 4 + k * row, count))
                continue
            source = matrix + first * row
            # Stores of 16 overlap: the next row overwrites the elements stored behind a row of the panel.
            for k in range(0, whole, 16):
                gather_rows(source + k * 4, row, count - 1, to + k * count * 4, count * 4)
            for k in range(whole, K):
                for i in range(count):
                    fstore(to + (k * count + i) * 4, fload(source + i * row + k * 4))

    return pack, types.void(*[types.int64] * 12)
