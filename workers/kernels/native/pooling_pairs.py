"""Pool windows of 2 x 2 that move by two over short rows of f32, which they cover exactly.

Pairs of rows are combined into rows that follow one another without gaps; pairs of their columns are results of several rows
of the destination at once. The geometry is the table of `pooling`; windows have one element in the depth. A work item is a plane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .compiler import types
from .first_lanes import vstore_part
from .pooling import DIM, dimension
from .stack_room import stack_room
from .vec import vadd, veven, vload, vload_part, vmax, vmul, vodd, vset, vstore

#: Columns of rows that are combined before pairs of them are, on the stack; and those behind them that are read, too.
ROOM: Final = 1024
_SLACK: Final = 48


def make(isa: str, algorithm: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for ``max`` or means of f32, and its signature. A row has at most `ROOM` columns."""
    takes_max = algorithm == "max"
    combine = vmax if takes_max else vadd
    room = stack_room(4 * (ROOM + _SLACK))

    def kernel(begin: int, end: int, src: int, dst: int, table: int) -> None:
        height, out_height, _, _, _, _ = dimension(table + DIM)
        width, out_width, _, _, _, _ = dimension(table + 2 * DIM)
        between = room()
        quarter = vset(np.float32(0.25))
        rows = min(out_height, ROOM // width)
        limit = src + 4 * width * height * end
        last = dst + 4 * out_width * out_height * end - 64
        for item in range(begin, end):
            line = src + 4 * width * height * item
            target = dst + 4 * out_width * out_height * item
            for first in range(0, out_height, rows):
                count = min(rows, out_height - first)
                to = between
                for _ in range(count):
                    for w in range(0, width, 16):
                        at = line + 4 * w
                        below = at + 4 * width
                        # What is behind a row does not matter: the next row is written there.
                        if below + 64 <= limit:
                            vstore(to + 4 * w, combine(vload(at), vload(below)))
                        else:
                            vstore(to + 4 * w, combine(vload_part(at, width - w), vload_part(below, width - w)))
                    line += 8 * width
                    to += 4 * width
                wanted = count * out_width
                for place in range(0, wanted, 16):
                    pair = between + 8 * place
                    low, high = vload(pair), vload(pair + 64)
                    value = combine(veven(low, high), vodd(low, high))
                    if not takes_max:
                        value = vmul(value, quarter)
                    # What is behind the last results of a plane is stored later, unless it is another range's.
                    if place + 16 <= wanted or target <= last:
                        vstore(target, value)
                    else:
                        vstore_part(target, value, wanted - place)
                    target += 64
                target += 4 * wanted - 64 * ((wanted + 15) // 16)

    return kernel, types.void(*[types.int64] * 5)
