"""Copy a row of a plane with zeros in place of padding, columns that are a stride apart side by side (*phases*)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiler.language import inlined
from .inside import load_apart
from .vec import veven, vload, vload_inside, vodd, vset, vstore


def make_copy_row(right: int) -> Any:
    """Return the function that copies a row for a stride of ``right`` columns.

    Arguments: address of the row; the first column, which may be before it; its width; address of the copy; bytes of a phase
    there; columns of each phase, rounded up to 16.
    """
    see_apart = load_apart("f32")

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
                vstore(place + phase, vodd(low, high))
            else:
                for number in range(right):
                    vstore(place + number * phase, see_apart(line, at + number, right, width, nothing))

    return copy_row
