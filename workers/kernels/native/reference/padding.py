"""Zero the padding of a blocked tensor; an item is an element of it, by its row-major number with padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .data_types import store
from .tensor import at, base, dim, dtype, padded_dim, rank


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (tensor, operands)."""

    def padding(begin: int, end: int, tensor: int, operands: Any) -> None:
        start, code = base(operands, tensor), dtype(tensor)
        for item in range(begin, end):
            rest, place, outside = item, 0, False
            for axis in range(rank(tensor) - 1, -1, -1):
                size = padded_dim(tensor, axis)
                outer = rest // size
                index = rest - outer * size
                outside |= index >= dim(tensor, axis)
                place += at(tensor, axis, index)
                rest = outer
            if outside:
                store(start + place, code, 0.0)

    return padding, types.void(*[types.int64] * 3, types.voidptr)
