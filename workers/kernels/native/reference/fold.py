"""Add up blocks of an image at their places; an item is an element of the image.

A table has for each dimension the stride, then the distances between elements of a block, then the padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from ..vec import iload
from .data_types import load, store
from .tensor import at, base, dim, dtype, rank, where


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, table, operands)."""

    def fold(begin: int, end: int, src: int, dst: int, table: int, operands: Any) -> None:
        count = rank(dst) - 2
        size = 1
        for axis in range(count):
            size *= dim(src, 2 + axis)
        for item in range(begin, end):
            total = 0.0
            for element in range(size):
                place, inner, is_inside = item, element, True
                start = base(operands, src)
                for back in range(count):
                    axis = count - 1 - back
                    along, k = place % dim(dst, 2 + axis), inner % dim(src, 2 + axis)
                    place //= dim(dst, 2 + axis)
                    inner //= dim(src, 2 + axis)
                    stride = iload(table + 8 * axis)
                    moved = along + iload(table + 8 * (2 * count + axis)) - k * iload(table + 8 * (count + axis))
                    position = moved // stride
                    is_inside &= moved >= 0 and moved % stride == 0 and position < dim(src, 2 + count + axis)
                    start += at(src, 2 + axis, k) + at(src, 2 + count + axis, position)
                if is_inside:
                    channel = place % dim(dst, 1)
                    start += at(src, 1, channel) + at(src, 0, place // dim(dst, 1))
                    total += load(start, dtype(src))
            store(base(operands, dst) + where(dst, item), dtype(dst), total)

    return fold, types.void(*[types.int64] * 5, types.voidptr)
