"""Replace the elements of a tensor at indices along an axis, or combine updates; an item is an element of the destination.

An index that is out of range does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import element, fetch, finish
from .gather import copy_element
from .scatter import combined
from .tensor import dim, rank


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, indices, updates, dst, chain, plain, reduction, axis, operands)."""

    def scatter_elements(
        begin: int, end: int, src: int, indices: int, updates: int, dst: int, chain: int, plain: int, reduction: int,
        axis: int, operands: Any,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            source, number, value = src, item, fetch(operands, src, item)
            # The first update of the element's row, in steps along the axis.
            first, step, distance, own, rest, count = 0, 1, 1, 0, item, dim(indices, axis)
            for each in range(rank(src) - 1, -1, -1):
                extent = dim(src, each)
                outer = rest // extent
                position = rest - outer * extent
                if each == axis:
                    own, distance = position, step
                else:
                    first += position * step
                    if position >= dim(indices, each):
                        count = 0
                step *= dim(indices, each)
                rest = outer
            for update in range(count):
                index = int(element(operands, indices, first + update * distance))
                index += dim(src, axis) if index < 0 else 0
                if index == own:
                    source, number = updates, first + update * distance
                    value = combined(reduction, value, fetch(operands, updates, number))
            if plain != 0:
                copy_element(operands, source, dst, chain, plain, item, number, True)
            else:
                finish(operands, dst, chain, item, value)

    return scatter_elements, types.void(*[types.int64] * 10, types.voidptr)
