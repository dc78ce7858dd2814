"""Pool windows that move by one over small planes, whose results have the size of the source: a plane is one run of elements.

A plane is copied to the stack. Its elements are combined with their neighbours in the row: neighbours that are in other rows are
masked. These combinations are combined with those of the rows above and below, which are ``width`` elements away; there are rows
of nothing around a plane. Last, planes are combined along the depth. So short rows leave no lane of a vector unused, and what
windows share is combined once. The geometry is the table of `pooling`. A work item is a channel's image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .compiler import types
from .compiler.language import inlined
from .elements import elements
from .pooling import DIM, dimension
from .stack_room import stack_room
from .vec import fstore, vadd, vdiv, vload, vmax, vmul, vselect_gt, vset, vstore

#: Elements of a plane, and of a plane with the rows around it, at most.
PLANE: Final = 1024
AROUND: Final = 2048
#: Elements of the planes that windows see along the depth, at most.
PLANES: Final = 4096
_SLACK: Final = 32


def make(isa: str, algorithm: str, width: int, left: int, height: int, top: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel for ``max``, ``avg_include_padding`` or ``avg_exclude_padding`` of f32, and its signature.

    Windows have ``height`` rows and ``width`` columns, of which ``top`` and ``left`` are before the element at their place.
    """
    takes_max, counts_padding = algorithm == "max", algorithm == "avg_include_padding"
    combine, start = (vmax, -np.inf) if takes_max else (vadd, 0.0)
    of = elements("f32")
    load_tail, store_part = of.load_tail, of.store_part
    raw_room, row_room = stack_room(4 * (PLANE + 2 * _SLACK)), stack_room(4 * (AROUND + 2 * _SLACK))
    plane_room, number_room = stack_room(4 * (PLANES + _SLACK)), stack_room(4 * (PLANE + _SLACK))
    count_room = stack_room(4 * (PLANE + _SLACK))

    @inlined
    def along(raw: int, number: int, columns: int, nothing: Any) -> Any:
        """Return what windows see of 16 elements' rows, whose numbers in the row are at an address."""
        value, place = combine(vload(raw), nothing), vload(number)
        for column in range(-left, width - left):
            if column < 0:
                seen = vselect_gt(place, vset(np.float32(-column - 0.5)), vload(raw + 4 * column), nothing)
                value = combine(seen, value)
            if column > 0:
                seen = vselect_gt(vset(np.float32(columns - column - 0.5)), place, vload(raw + 4 * column), nothing)
                value = combine(seen, value)
        return value

    @inlined
    def seen(first: int, window: int, size: int) -> int:
        """Return how many of the ``window`` indices from ``first`` on are in [0, size)."""
        return min(first + window, size) - max(first, 0)

    def kernel(begin: int, end: int, src: int, dst: int, table: int) -> None:
        depth, _, window, _, _, front = dimension(table)
        rows = dimension(table + DIM)[0]
        columns = dimension(table + 2 * DIM)[0]
        elements_of_plane = rows * columns
        size, whole, left_over = 4 * elements_of_plane, 4 * (elements_of_plane & -16), elements_of_plane & 15
        nothing = vset(np.float32(start))
        raw, planes, numbers, counts = raw_room() + 4 * _SLACK, plane_room(), number_room(), count_room()
        lines = row_room() + 4 * (top * columns + 15 & -16)
        stride = size + 63 & -64
        final_plane = planes + window * stride
        for at in range(0, 4 * top * columns, 64):
            vstore(lines - 64 - at, nothing)
        for row in range(rows):
            for column in range(columns):
                at = 4 * (row * columns + column)
                fstore(numbers + at, np.float32(column))
                if not takes_max:
                    count = height * width
                    if not counts_padding:
                        count = seen(row - top, height, rows) * seen(column - left, width, columns)
                    fstore(counts + at, np.float32(count))
        # Up to here a vector may be stored: what is behind a plane is stored later, unless it is another range's.
        last = dst + end * depth * size - 64
        behind = window - 1 - front
        for item in range(begin, end):
            written = planes
            for step in range(depth + behind):
                if step < depth:
                    source = src + (item * depth + step) * size
                    for at in range(0, whole, 64):
                        vstore(raw + at, vload(source + at))
                    if left_over:
                        vstore(raw + whole, load_tail(source + whole, left_over))
                    for at in range(0, size, 64):
                        vstore(lines + at, along(raw + at, numbers + at, columns, nothing))
                    for at in range(size, size + 4 * (height - 1 - top) * columns, 64):
                        vstore(lines + at, nothing)
                    for at in range(0, size, 64):
                        place = lines + at - 4 * top * columns
                        value = vload(place)
                        for _ in range(1, height):
                            place += 4 * columns
                            value = combine(vload(place), value)
                        vstore(written + at, value)
                    written += stride
                    if written == final_plane:
                        written = planes
                out_d = step - behind
                if out_d >= 0:
                    low, count = max(0, out_d - front), seen(out_d - front, window, depth)
                    first = planes + low % window * stride
                    many = vset(np.float32(window if counts_padding else count))
                    target = dst + (item * depth + out_d) * size
                    for at in range(0, size, 64):
                        plane = first
                        value = vload(plane + at)
                        for _ in range(1, count):
                            plane += stride
                            if plane == final_plane:
                                plane = planes
                            value = combine(vload(plane + at), value)
                        if not takes_max:
                            value = vdiv(value, vmul(vload(counts + at), many))
                        if target + at <= last:
                            vstore(target + at, value)
                        else:
                            store_part(target + at, value, min(16, (size - at) // 4))

    return kernel, types.void(*[types.int64] * 5)
