"""Copy rows of up to four sources to their places in the rows of one destination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import types
from .compiler.language import not_inlined
from .movement import Movement
from .reorder import copier
from .short_copy import copy_short_rows


def make(isa: str, kind: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for elements of a width, ``bits8`` to ``bits64``, and its signature.

    A source has ``length`` elements a row, which begin ``place`` elements into each row of the destination. A work item is
    ``block`` of ``lines`` rows of all sources; if ``block`` is 0, a piece of at most ``chunk`` elements of one row of a source,
    whose items end before ``items``. A source that is not there has no elements and no items.
    """

    movement = Movement(kind, kind)
    copy, size = copier(movement), movement.src_size

    @not_inlined
    def copy_rows(src: int, dst: int, row: int, line: int, rows: int, length: int, place: int) -> None:
        """Copy the rows of one source: the width of a row is looked at once for all rows."""
        source, target = src + size * line * length, dst + size * (line * row + place)
        if size * length < 64:
            copy_short_rows(source, target, rows, size * length, size * row, size * length)
        else:
            copy(source, target, rows, size * length, size * row, length)

    def kernel(
        begin: int, end: int, dst: int, row: int, lines: int, block: int, chunk: int,
        src0: int, length0: int, place0: int, items0: int, src1: int, length1: int, place1: int, items1: int,
        src2: int, length2: int, place2: int, items2: int, src3: int, length3: int, place3: int, items3: int,
    ) -> None:  # fmt: skip
        if block != 0:
            for item in range(begin, end):
                line = item * block
                rows = min(block, lines - line)
                copy_rows(src0, dst, row, line, rows, length0, place0)
                copy_rows(src1, dst, row, line, rows, length1, place1)
                copy_rows(src2, dst, row, line, rows, length2, place2)
                copy_rows(src3, dst, row, line, rows, length3, place3)
            return
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

    return kernel, types.void(*[types.int64] * 23)
