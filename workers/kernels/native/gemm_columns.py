"""Pack columns of row-major matrices, 16 side by side, from some adjacent rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import types
from .vec import iload, prefetch, vload, vload_part, vstore


def make(isa: str, slab: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel for items of work of ``slab`` rows of a matrix, or what is left of them.

    Lines of up to 8 rows, if these are a multiple of 4 KiB apart, stay in the first-level cache together.

    Arguments, distances in bytes: addresses of the matrices, of the packed columns and of a table with the offset of each
    matrix; rows and columns of a matrix; the distances from row to row, and of the packed columns from matrix to matrix and
    from 16 columns to the next 16.
    """

    def pack(
        begin: int, end: int, src: int, dst: int, matrices: int, rows: int, columns: int, row: int, dst_matrix: int,
        dst_block: int,
    ) -> None:  # fmt: skip
        slabs = (rows + slab - 1) // slab
        whole = columns // 16
        for item in range(begin, end):
            first = item % slabs * slab
            count = min(slab, rows - first)
            source = src + iload(matrices + item // slabs * 8) + first * row
            to = dst + item // slabs * dst_matrix + first * 64
            if count == slab:
                for j in range(whole):
                    # The next item's rows are in other pages, which the processor does not foresee.
                    for k in range(slab, 2 * slab):
                        prefetch(source + k * row + j * 64)
                    for k in range(slab):
                        vstore(to + j * dst_block + k * 64, vload(source + k * row + j * 64))
            else:
                for k in range(count):
                    for j in range(whole):
                        vstore(to + j * dst_block + k * 64, vload(source + k * row + j * 64))
            if whole * 16 < columns:
                for k in range(count):
                    part = vload_part(source + k * row + whole * 64, columns - whole * 16)
                    vstore(to + whole * dst_block + k * 64, part)

    return pack, types.void(*[types.int64] * 10)
