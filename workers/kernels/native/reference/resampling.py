"""Resample spatial dimensions by the nearest element or linearly; an item is an element of the destination.

Element i is at ((2 i + 1) * size - wanted) / (2 * wanted) in the source: integers decide which is nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types

from .epilogue import fetch, finish
from .scalars import piece
from .tensor import dim, rank


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, chain, linear, operands)."""

    def resampling(begin: int, end: int, src: int, dst: int, chain: int, linear: int, operands: Any) -> None:
        corners = 1 << (rank(src) - 2) if linear != 0 else 1
        for item in range(begin, end):
            value = 0.0
            for corner in range(corners):
                rest, chosen, source, step, weight = item, corner, 0, 1, 1.0
                for axis in range(rank(src) - 1, -1, -1):
                    size, wanted = dim(src, axis), dim(dst, axis)
                    outer = rest // wanted
                    index = rest - outer * wanted
                    rest = outer
                    if axis >= 2:
                        if linear != 0:
                            weight *= _weight(index, size, wanted, chosen & 1)
                            index = _neighbour(index, size, wanted, chosen & 1)
                            chosen >>= 1
                        else:
                            index = (2 * index + 1) * size // (2 * wanted)
                    source += index * step
                    step *= size
                if corners == 1 or weight != 0.0:
                    value += weight * fetch(operands, src, source)
            finish(operands, dst, chain, item, value)

    return resampling, types.void(*[types.int64] * 6, types.voidptr)


@piece
def _neighbour(index: int, size: int, wanted: int, upper: int) -> int:
    """Return the element below a place (or above it), the edges repeated."""
    low = ((2 * index + 1) * size - wanted) // (2 * wanted) + upper
    return min(max(low, 0), size - 1)


@piece
def _weight(index: int, size: int, wanted: int, upper: int) -> float:
    """Return how much the element below a place (or above it) weighs."""
    place = (2 * index + 1) * size - wanted
    part = (place - place // (2 * wanted) * (2 * wanted)) / (2.0 * wanted)
    return part if upper != 0 else 1.0 - part
