"""Copy a row of a plane with zeros in place of padding, columns that are a stride apart side by side (*phases*)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .compiler.language import inlined
from .dealt_columns import DEALT, make_deal
from .inside import load_apart
from .phases import phases_of
from .vec import veven, vload, vload_inside, vodd, vset, vstore

#: The largest stride of which rows that no tap reads are left out.
_SKIPPED: Final = 32


def make_is_seen(taps: int, dilation: int, stride: int) -> Any:
    """Return the function (row) that returns 1 if a tap reads a row of the copy, else 0; arguments as those of `phases_of`."""
    seen = sum(1 << number for number in phases_of(taps, dilation, stride))
    skips = stride <= _SKIPPED and seen != (1 << stride) - 1

    @inlined
    def is_seen(row: int) -> int:
        return seen >> row % stride & 1 if skips else 1

    return is_seen


def make_copy_row(right: int, phases: tuple[int, ...]) -> Any:
    """Return the function that copies a row for a stride of ``right`` columns, of which taps read ``phases``.

    Arguments: address of the row; the first column, which may be before it; its width; address of the copy; bytes of a phase
    there; columns of each phase, rounded up to 16.
    """
    see_apart = load_apart("f32")
    is_dealt = right in DEALT
    deal, deal_inside = (make_deal(right, phases, is_inside=is_inside) for is_inside in (False, True))
    has_odd, seen = 1 in phases, sum(1 << number for number in phases)

    @inlined
    def copy_row(line: int, first: int, width: int, to: int, phase: int, count: int) -> None:
        nothing = vset(np.float32(0.0))
        for column in range(0, count, 16):
            at, place = first + right * column, to + 4 * column
            if right == 1:
                if at >= 0 and at + 16 <= width:
                    vstore(place, vload(line + 4 * at))
                else:
                    vstore(place, vload_inside(line, at, width, nothing))
            elif right == 2:
                low, high = nothing, nothing
                if at >= 0 and at + 32 <= width:
                    low, high = vload(line + 4 * at), vload(line + 4 * at + 64)
                else:
                    low = vload_inside(line, at, width, nothing)
                    high = vload_inside(line, at + 16, width, nothing)
                vstore(place, veven(low, high))
                if has_odd:
                    vstore(place + phase, vodd(low, high))
            elif is_dealt:
                if at >= 0 and at + 16 * right <= width:
                    deal_inside(line, at, width, place, phase)
                else:
                    deal(line, at, width, place, phase)
            else:
                for number in range(right):
                    if seen >> number & 1:
                        vstore(place + number * phase, see_apart(line, at + number, right, width, nothing))

    return copy_row


def make_copy_columns(right: int) -> Any:
    """Return the function that copies the columns of a row, of which the copy has zeros on both sides already.

    ``right`` is a stride of 1 or 2 columns. Arguments: address of the row, columns of padding before it, how many of its columns
    are copied, address of the copy, bytes of a phase there. Zeros may follow in the copy, up to `end_of_copy`.
    """

    @inlined
    def copy_columns(line: int, left: int, count: int, to: int, phase: int) -> None:
        nothing = vset(np.float32(0.0))
        size = 16 * right
        if count < size:
            # Half a vector of each phase, and zeros.
            size = 16
        at = 0
        while at < count:
            # The last columns with some of those before them: a masked load takes the time of several plain ones.
            here = max(0, min(at, count - size))
            low, high = nothing, nothing
            if count < 16:
                low = vload_inside(line, 0, count, nothing)
            else:
                low = vload(line + 4 * here)
            if right == 1:
                vstore(to + 4 * (left + here), low)
            else:
                if size == 32:
                    high = vload(line + 4 * here + 64)
                odd, place = (left + here) & 1, to + 4 * (left + here >> 1)
                vstore(place + odd * phase, veven(low, high))
                vstore(place + (1 - odd) * phase + 4 * odd, vodd(low, high))
            at += size

    return copy_columns


@inlined
def end_of_copy(left: int, count: int, right: int) -> int:
    """Return the columns of a phase that `make_copy_columns` writes to."""
    size = 16 * right if count >= 16 * right else 16
    return (left + max(0, count - size) + right - 1) // right + 16
