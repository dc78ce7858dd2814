"""The index of the largest or smallest element along an axis; an item is a row along it, of elements ``inner`` apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import fetch, finish


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, chain, size of the axis, inner, smallest, last, operands)."""

    def arg_reduction(
        begin: int,
        end: int,
        src: int,
        dst: int,
        chain: int,
        size: int,
        inner: int,
        smallest: int,
        last: int,
        operands: Any,
    ) -> None:
        for item in range(begin, end):
            outer = item // inner
            first = outer * size * inner + item - outer * inner
            found, best = 0, fetch(operands, src, first)
            for index in range(1, size):
                x = fetch(operands, src, first + index * inner)
                if is_better(x, best, smallest) or (last != 0 and not is_better(best, x, smallest)):
                    found, best = index, x
            finish(operands, dst, chain, item, float(found))

    return arg_reduction, types.void(*[types.int64] * 9, types.voidptr)


def is_better(x: float, y: float, smallest: int) -> bool:
    """Return whether x comes before y: NaN first, then the largest numbers, or the smallest."""
    if x != x or y != y:
        return x != x and y == y
    return x < y if smallest != 0 else x > y
