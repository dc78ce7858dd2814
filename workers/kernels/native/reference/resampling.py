"""Resample spatial dimensions; an item is an element of the destination.

A table says what an index of the destination sees along a dimension: for each of ``taps`` elements its number, -1 if the place
is outside of the source, and its weight as an integer, 2**60 times the number. The table begins with the place of each
dimension's part, in int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..compiler import types
from .epilogue import fetch, finish
from .scalars import read_s64
from .tensor import dim, rank

_UNIT: Final = 2.0**-60


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, chain, seen, taps, extrapolation, operands)."""

    def resampling(
        begin: int, end: int, src: int, dst: int, chain: int, seen: int, taps: int, extrapolation: float, operands: Any
    ) -> None:
        corners = 1
        for _ in range(2, rank(src)):
            corners *= taps
        for item in range(begin, end):
            value, outside = 0.0, False
            for corner in range(corners):
                rest, chosen, source, step, weight = item, corner, 0, 1, 1.0
                for axis in range(rank(src) - 1, -1, -1):
                    outer = rest // dim(dst, axis)
                    index = rest - outer * dim(dst, axis)
                    rest = outer
                    if axis >= 2:
                        further = chosen // taps
                        number = index * taps + chosen - further * taps
                        chosen = further
                        place = seen + 8 * (read_s64(seen + 8 * (axis - 2)) + 2 * number)
                        index = read_s64(place)
                        weight *= float(read_s64(place + 8)) * _UNIT
                        if index < 0:
                            outside = True
                    source += index * step
                    step *= dim(src, axis)
                if weight != 0.0 and not outside:
                    value += weight * fetch(operands, src, source)
            finish(operands, dst, chain, item, extrapolation if outside else value)

    return resampling, types.void(*[types.int64] * 7, types.float64, types.voidptr)
