"""Copy the elements of a tensor that indices choose along an axis; an item is an element of the destination.

An index that is out of range gives zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import element
from .gather import copy_element
from .tensor import dim, rank


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, indices, dst, chain, plain, axis, operands)."""

    def gather_elements(
        begin: int, end: int, src: int, indices: int, dst: int, chain: int, plain: int, axis: int, operands: Any
    ) -> None:
        for item in range(begin, end):
            index = int(element(operands, indices, item))
            size = dim(src, axis)
            index += size if index < 0 else 0
            inside = 0 <= index < size
            number, step, rest = 0, 1, item
            for each in range(rank(src) - 1, -1, -1):
                extent = dim(dst, each)
                outer = rest // extent
                number += (index if each == axis else rest - outer * extent) * step
                step *= dim(src, each)
                rest = outer
            copy_element(operands, src, dst, chain, plain, item, number, inside)

    return gather_elements, types.void(*[types.int64] * 8, types.voidptr)
