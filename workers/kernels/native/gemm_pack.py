"""Pack rows of row-major matrices into panels (K, positions), from which a product broadcasts its left factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types

from .transpose import gather_rows
from .vec import fload, fstore


def make(isa: str, positions: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel for panels of ``positions`` rows, at most 16.

    Arguments: addresses of the matrices and of the panels; panels of a matrix; rows and K of a matrix; the distances in
    bytes from matrix to matrix, row to row and panel to panel (of at least 64 bytes more than a panel holds).
    Rows behind the last one repeat it. One item of work is one panel.
    """

    def pack(
        begin: int, end: int, src: int, dst: int, panels: int, rows: int, K: int, matrix: int, row: int, panel: int
    ) -> None:
        whole = K // 16 * 16
        for item in range(begin, end):
            first = item % panels * positions
            source = src + item // panels * matrix + first * row
            to = dst + item * panel
            last = min(positions, rows - first) - 1
            # Stores of 16 overlap: the next row overwrites the elements stored behind a row of the panel.
            for k in range(0, whole, 16):
                gather_rows(source + k * 4, row, last, to + k * positions * 4, positions * 4)
            for k in range(whole, K):
                for i in range(positions):
                    fstore(to + (k * positions + i) * 4, fload(source + min(i, last) * row + k * 4))

    return pack, types.void(*[types.int64] * 10)
