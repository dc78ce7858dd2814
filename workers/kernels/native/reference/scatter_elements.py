"""Replace the elements of a tensor at indices along an axis, or combine updates; an item is an element of the destination.

An index that is out of range does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import are_whole, element, fetch, finish, put_whole, whole_element
from .gather import copy_element
from .scalars import read_s64
from .scattered import combined, combined_whole
from .tensor import dim, dtype, rank


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, indices, updates, dst, chain, plain, reduction, axis, operands)."""

    def scatter_elements(
        begin: int, end: int, src: int, indices: int, updates: int, dst: int, chain: int, plain: int, reduction: int,
        axis: int, operands: Any,
    ) -> None:  # fmt: skip
        whole = read_s64(chain) == 0 and are_whole(src, dst) and are_whole(updates, dst)
        for item in range(begin, end):
            source, number, value, total = src, item, fetch(operands, src, item), 0
            if whole:
                total = whole_element(operands, src, item)
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
                    if whole:
                        added = whole_element(operands, updates, number)
                        total = combined_whole(reduction, total, added, dtype(dst))
                    else:
                        value = combined(reduction, value, fetch(operands, updates, number))
            if plain != 0:
                copy_element(operands, source, dst, chain, plain, item, number, True)
            elif whole:
                put_whole(operands, dst, item, total)
            else:
                finish(operands, dst, chain, item, value)

    return scatter_elements, types.void(*[types.int64] * 10, types.voidptr)
