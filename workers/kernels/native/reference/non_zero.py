"""The indices of the elements that are not 0, in row-major order; one item does all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .data_types import store
from .epilogue import fetch
from .tensor import base, dim, dtype, rank, where


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, indices, count, elements of src, operands)."""

    def non_zero(begin: int, end: int, src: int, indices: int, count: int, elements: int, operands: Any) -> None:
        dims = rank(src)
        for _ in range(begin, end):
            found = 0
            for element in range(elements):
                if fetch(operands, src, element) != 0.0:
                    rest = element
                    for axis in range(dims - 1, -1, -1):
                        size = dim(src, axis)
                        _put(operands, indices, axis * elements + found, rest % size)
                        rest //= size
                    found += 1
            for column in range(found, elements):
                for axis in range(dims):
                    _put(operands, indices, axis * elements + column, 0)
            _put(operands, count, 0, found)

    return non_zero, types.void(*[types.int64] * 6, types.voidptr)


def _put(operands: Any, record: int, item: int, value: int) -> None:
    store(base(operands, record) + where(record, item), dtype(record), float(value))
