"""The boxes of one class of one image that overlap no better one: the best of a heap, one after the other.

An item's part of the scratchpad has, in this order: 64 bytes with the number of chosen boxes, their indices (int64), for each of
``room`` chosen boxes the lower and upper ends along both axes and the area, each in an array of float32, and the heap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .bits import make_store
from .compiler import types
from .keys import make_key
from .top_k import sink
from .vec import (
    fload,
    fstore,
    iload,
    vadd,
    vbroadcast,
    vdiv,
    vload_part,
    vmax,
    vmax_lane,
    vmin,
    vmul,
    vselect_gt,
    vset,
    vsub,
)

_store_8 = make_store(8)


def make(isa: str, center_point: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature; boxes have a centre and a size if ``center_point``, else two corners."""
    # Of smaller keys for greater scores, so that the best is on top of a heap that has the least there.
    key = make_key("f32", True)

    def kernel(
        begin: int, end: int, boxes: int, scores: int, limits: int, scratch: int, classes: int, size: int, most: int,
        room: int, each: int, image_step: int, box_step: int, number_step: int, scores_step: int, class_step: int,
        score_step: int, limit_step: int,
    ) -> None:  # fmt: skip
        wanted, overlap, least = fload(limits), fload(limits + limit_step), fload(limits + 2 * limit_step)
        # No comparison is true for NaN.
        limit = int(min(max(wanted, np.float32(0.0)), np.float32(most))) if wanted >= np.float32(1.0) else 0
        limit = min(limit, most)
        for item in range(begin, end):
            image = item // classes
            source = boxes + image * image_step
            values = scores + image * scores_step + (item - image * classes) * class_step
            chosen = scratch + item * each
            corners = chosen + 64 + 8 * room
            heap = corners + 20 * room
            left = 0
            for index in range(size):
                place = values + index * score_step
                if fload(place) > least:
                    # Of equal keys, that with the greatest number behind it is on top.
                    _store_8(heap + 16 * left, key(place))
                    _store_8(heap + 16 * left + 8, -index)
                    left += 1
            for place in range(left // 2 - 1, -1, -1):
                sink(heap, place, left, iload(heap + 16 * place), iload(heap + 16 * place + 8))
            count, solid = 0, 0
            while left > 0 and count < limit:
                index = -iload(heap + 8)
                left -= 1
                sink(heap, 0, left, iload(heap + 16 * left), iload(heap + 16 * left + 8))
                box = source + index * box_step
                a, b = fload(box), fload(box + number_step)
                c, d = fload(box + 2 * number_step), fload(box + 3 * number_step)
                if center_point:
                    high, wide = np.float32(0.5) * c, np.float32(0.5) * d
                    top, left_end, bottom, right_end = a - high, b - wide, a + high, b + wide
                else:
                    top, left_end, bottom, right_end = min(a, c), min(b, d), max(a, c), max(b, d)
                area = (bottom - top) * (right_end - left_end)
                # Boxes without an area overlap nothing, and are not among those that others are compared with.
                is_solid = bottom > top and right_end > left_end
                place = corners + 4 * solid
                fstore(place, top)
                fstore(place + 4 * room, left_end)
                fstore(place + 8 * room, bottom)
                fstore(place + 12 * room, right_end)
                fstore(place + 16 * room, area)
                if is_solid and _overlaps(corners, room, solid, place, overlap):
                    continue
                _store_8(chosen + 64 + 8 * count, index)
                count += 1
                if is_solid:
                    solid += 1
            _store_8(chosen, count)

    return kernel, types.void(*[types.int64] * 18)


def _overlaps(corners: int, room: int, count: int, box: int, limit: float) -> bool:
    """Return whether a box overlaps one of those that are chosen by more than a limit."""
    zero, none = vset(np.float32(0.0)), vset(np.float32(-np.inf))
    top, left, bottom = vbroadcast(box), vbroadcast(box + 4 * room), vbroadcast(box + 8 * room)
    right, area = vbroadcast(box + 12 * room), vbroadcast(box + 16 * room)
    for first in range(0, count, 16):
        place, rest = corners + 4 * first, count - first
        high = vsub(vmin(bottom, vload_part(place + 8 * room, rest)), vmax(top, vload_part(place, rest)))
        wide = vsub(vmin(right, vload_part(place + 12 * room, rest)), vmax(left, vload_part(place + 4 * room, rest)))
        common = vmul(vmax(high, zero), vmax(wide, zero))
        union = vsub(vadd(vload_part(place + 16 * room, rest), area), common)
        share = vselect_gt(common, zero, vdiv(common, union), none)
        if vmax_lane(share) > limit:
            return True
    return False
