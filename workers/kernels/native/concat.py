"""Copy rows of up to four sources to their places in the rows of one destination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from .vec import vload, vstore, vstore_part


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel and its signature.

    A source has ``length`` elements a row, which begin ``place`` elements into each row of the destination; its work
    items, pieces of at most ``chunk`` elements, end before ``items``. A source that is not there has no items.
    """

    def kernel(
        begin: int, end: int, dst: int, row: int, chunk: int,
        src0: int, length0: int, place0: int, items0: int, src1: int, length1: int, place1: int, items1: int,
        src2: int, length2: int, place2: int, items2: int, src3: int, length3: int, place3: int, items3: int,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            if item < items0:
                src, length, place, index = src0, length0, place0, item
            elif item < items1:
                src, length, place, index = src1, length1, place1, item - items0
            elif item < items2:
                src, length, place, index = src2, length2, place2, item - items1
            else:
                src, length, place, index = src3, length3, place3, item - items2
            pieces = (length + chunk - 1) // chunk
            line = index // pieces
            first = (index - line * pieces) * chunk
            count = min(chunk, length - first)
            source = src + 4 * (line * length + first)
            target = dst + 4 * (line * row + place + first)
            whole = 4 * (count & -16)
            for at in range(0, whole, 64):
                vstore(target + at, vload(source + at))
            if count & 15:
                vstore_part(target + whole, vload(source + whole), count & 15)

    return kernel, types.void(*[types.int64] * 21)
