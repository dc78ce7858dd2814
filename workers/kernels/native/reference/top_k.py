"""The largest or smallest elements along an axis; an item is a row along it, of elements ``inner`` apart.

Each result is the best of the elements that come after the result before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .arg_reduction import is_better
from .data_types import store
from .epilogue import fetch
from .gather import copy_element
from .tensor import base, dtype, where


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, indices, chain, k, size of the axis, inner, smallest, operands)."""

    def top_k(
        begin: int, end: int, src: int, dst: int, indices: int, chain: int, k: int, size: int, inner: int, smallest: int,
        operands: Any,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            outer = item // inner
            first = outer * size * inner + item - outer * inner
            before, last = 0.0, -1
            for number in range(k):
                found, best = -1, 0.0
                for index in range(size):
                    x = fetch(operands, src, first + index * inner)
                    after = last < 0 or is_better(before, x, smallest)
                    after |= index > last and not is_better(x, before, smallest)
                    if after and (found < 0 or is_better(x, best, smallest)):
                        found, best = index, x
                before, last = best, found
                place = outer * k * inner + number * inner + item - outer * inner
                copy_element(operands, src, dst, chain, 1, place, first + found * inner, True)
                store(base(operands, indices) + where(indices, place), dtype(indices), float(found))

    return top_k, types.void(*[types.int64] * 10, types.voidptr)
