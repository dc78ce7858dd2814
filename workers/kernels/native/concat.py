"""Copy rows of up to four sources to their places in the rows of one destination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import types
from .movement import Movement
from .reorder import copier


def make(isa: str, kind: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for elements of a width, ``bits8`` to ``bits64``, and its signature.

    A source has ``length`` elements a row, which begin ``place`` elements into each row of the destination; its work
    items, pieces of at most ``chunk`` elements, end before ``items``. A source that is not there has no items.
    """

    movement = Movement(kind, kind)
    copy, size = copier(movement), movement.src_size

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
            copy(src + size * (line * length + first), dst + size * (line * row + place + first), 1, 0, 0, count)

    return kernel, types.void(*[types.int64] * 21)
