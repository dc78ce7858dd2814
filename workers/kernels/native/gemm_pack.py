"""Pack rows of matrices into panels (K, rows of a tile), from which a product broadcasts its left factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .compiler import types
from .transpose import gather_few_rows, gather_rows
from .vec import fload, fstore, iload, prefetch, vload, vstore

#: Inputs that are asked for before they are packed.
_AHEAD: Final = 8


def make(isa: str, order: str = "rows", together: int = 1) -> tuple[Callable[..., None], Any]:
    """Return the kernel for panels of any number of rows up to 16; adjacent are the elements of "rows" or of "columns".

    Arguments: addresses of the matrices, of the panels and of a table with the offset of each matrix; panels of a
    matrix, the rows of the first ones and how many these are: the others have one row less; K; distances in bytes from
    row to row of a matrix (in columns, from column to column), and of the panels from matrix to matrix and for each row (64
    at least more than K floats).
    One item of work is one panel; in columns, ``together`` panels of a matrix, or what is left of them: of many, whole lines of
    the cache are read.
    """
    function = {"rows": _pack_rows, "columns": _pack_columns(together)}[order]
    return function, types.void(*[types.int64] * 12)


def _pack_rows(
    begin: int, end: int, src: int, dst: int, matrices: int, panels: int, positions: int, large: int, K: int, row: int,
    dst_matrix: int, dst_row: int,
) -> None:  # fmt: skip
    whole = K // 16 * 16
    for item in range(begin, end):
        number = item % panels
        first = number * positions - max(0, number - large)
        count = positions - int(number >= large)
        source = src + iload(matrices + item // panels * 8) + first * row
        to = dst + item // panels * dst_matrix + first * dst_row
        # Stores of 8 and 16 overlap: the next row overwrites the elements stored behind a row of the panel.
        for k in range(0, whole, 16):
            if count <= 8:
                gather_few_rows(source + k * 4, row, count - 1, to + k * count * 4, count * 4)
            else:
                gather_rows(source + k * 4, row, count - 1, to + k * count * 4, count * 4)
        for k in range(whole, K):
            for i in range(count):
                fstore(to + (k * count + i) * 4, fload(source + i * row + k * 4))


def _pack_columns(together: int) -> Callable[..., None]:
    def pack(
        begin: int, end: int, src: int, dst: int, matrices: int, panels: int, positions: int, large: int, K: int, row: int,
        dst_matrix: int, dst_row: int,
    ) -> None:  # fmt: skip
        groups = (panels + together - 1) // together
        rows = panels * positions - (panels - large)
        for item in range(begin, end):
            start = item % groups * together
            stop = min(panels, start + together)
            # The last ones' stores of 16 would read behind the matrix, those of the last input.
            behind = K - 1
            if row < 64:
                behind = 0
            source = src + iload(matrices + item // groups * 8)
            to = dst + item // groups * dst_matrix
            for k in range(K):
                first = start * positions - max(0, start - large)
                # The next inputs are in other pages, which the processor does not foresee.
                for j in range(0, together * positions, 16):
                    prefetch(source + (k + _AHEAD) * row + (first + j) * 4)
                for number in range(start, stop):
                    count = positions - int(number >= large)
                    at, onto = source + k * row + first * 4, to + first * dst_row + k * count * 4
                    if k < behind or first + 16 <= rows:
                        # Stores of 16 overlap here, too.
                        vstore(onto, vload(at))
                    else:
                        for i in range(count):
                            fstore(onto + i * 4, fload(at + i * 4))
                    first += count

    return pack
