"""Rows of a large result, computed on the stack and written past the caches in whole lines."""

from __future__ import annotations

from typing import Final

from .bits import copy_bytes
from .compiler.language import inlined
from .past_caches import LINE, finish_streams, vstream
from .stack_room import stack_room
from .vec import vload, vstore

#: Bytes of a row that `row_room` holds, less than half of a first-level cache, which holds the row's source, too.
ROW: Final = 1 << 14
#: Memory on the stack for a row of `ROW` bytes that begins anywhere in a cache line, and lanes behind it.
row_room = stack_room(ROW + 3 * LINE)


@inlined
def place_in_room(target: int, room: int) -> int:
    """Return where a row is computed that `put_row` writes to ``target``: at the same place of a cache line."""
    return room + (target & LINE - 1)


@inlined
def put_row(target: int, room: int, nbytes: int, is_first: bool, is_last: bool) -> None:
    """Write a row of at least a cache line, in whole lines: the rest of a line, which the next row continues, stays in ``room``.

    Rows follow one another; the ``first`` and the ``last`` are those of a thread, which shares lines with others.
    """
    line, begun = target & -LINE, 0
    if is_first and target & LINE - 1:
        begun = LINE
        copy_bytes(target, room + (target & LINE - 1), LINE - (target & LINE - 1))
    end = target + nbytes
    whole = (end & -LINE) - line
    for at in range(begun, whole, LINE):
        vstream(line + at, vload(room + at))
    if is_last:
        copy_bytes(line + whole, room + whole, end & LINE - 1)
        finish_streams()
    else:
        vstore(room, vload(room + whole))
