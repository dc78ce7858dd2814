"""Sample src at the places of a grid; an item is an element of the destination.

There are one, two or four neighbours (``taps``) along each dimension. ``padding`` is a number of `SAMPLE_PADDINGS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..compiler import types
from .epilogue import element, fetch, finish
from .gather import copy_element
from .tensor import dim, rank

_REFLECTION: Final = 2
#: The slope of the cubic function one element away.
_CUBIC: Final = -0.75


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, grid, dst, chain, plain, taps, padding, corners, operands); see `copy_element` for ``plain``."""

    def grid_sample(
        begin: int, end: int, src: int, grid: int, dst: int, chain: int, plain: int, taps: int, padding: int,
        corners: int, operands: Any,
    ) -> None:  # fmt: skip
        axes = rank(src) - 2
        points, neighbours = 1, 1
        for axis in range(axes):
            points *= dim(dst, 2 + axis)
            neighbours *= taps
        for item in range(begin, end):
            plane = item // points
            image = plane // dim(src, 1)
            place = (image * points + item - plane * points) * axes
            value = 0.0
            for neighbour in range(neighbours):
                rest, number, step, weight, outside = neighbour, 0, 1, 1.0, False
                for axis in range(axes - 1, -1, -1):
                    length = dim(src, 2 + axis)
                    size = float(length)
                    given = element(operands, grid, place + axes - 1 - axis)
                    at = given * (0.5 * (size - 1.0) if corners else 0.5 * size) + 0.5 * (size - 1.0)
                    if taps == 1:
                        at = np.rint(at)
                    if padding and taps < 4:
                        at = _moved(at, padding, corners, size)
                    further = rest // taps
                    tap = rest - further * taps
                    rest = further
                    first = at if taps == 1 else np.floor(at)
                    if taps > 1:
                        weight *= _weight(at - first, taps, tap)
                    near = first + float(tap - (1 if taps == 4 else 0))
                    if padding:
                        near = _moved(near, padding, corners, size)
                    if near >= 0.0 and near <= size - 1.0:
                        number += int(near) * step
                    else:
                        outside = True
                    step *= length
                if taps == 1:
                    copy_element(operands, src, dst, chain, plain, item, plane * step + number, not outside)
                elif not outside:
                    value += weight * fetch(operands, src, plane * step + number)
            if taps > 1:
                finish(operands, dst, chain, item, value)

    return grid_sample, types.void(*[types.int64] * 10, types.voidptr)


def _weight(ratio: float, taps: int, tap: int) -> float:
    """Return the weight of a neighbour of a place that is ``ratio`` behind an element."""
    if taps == 2:
        return ratio if tap == 1 else 1.0 - ratio
    x = abs(ratio - float(tap - 1))
    if tap == 0 or tap == 3:
        return ((_CUBIC * x - 5.0 * _CUBIC) * x + 8.0 * _CUBIC) * x - 4.0 * _CUBIC
    return ((_CUBIC + 2.0) * x - (_CUBIC + 3.0)) * x * x + 1.0


def _moved(place: float, padding: int, corners: int, size: float) -> float:
    """Return a place that is moved to the edge, or mirrored there; the first one for NaN."""
    if padding == _REFLECTION:
        low, span = (0.0 if corners else -0.5), (size - 1.0 if corners else size)
        if span > 0.0:
            away = place - low
            place = abs(away - np.rint(away * (0.5 / span)) * (2.0 * span)) + low
    place = place if place > 0.0 else 0.0
    return place if place < size - 1.0 else size - 1.0
