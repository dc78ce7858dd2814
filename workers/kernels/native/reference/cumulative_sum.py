"""The sums of the elements up to each one along an axis; an item is a row along it, of elements ``inner`` apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import are_whole, fetch, finish, put_whole, whole_element
from .scalars import read_s64


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, chain, size of the axis, inner, exclusive, reverse, operands)."""

    def cumulative_sum(
        begin: int, end: int, src: int, dst: int, chain: int, size: int, inner: int, exclusive: int, reverse: int,
        operands: Any,
    ) -> None:  # fmt: skip
        whole = read_s64(chain) == 0 and are_whole(src, dst)
        for item in range(begin, end):
            outer = item // inner
            first = outer * size * inner + item - outer * inner
            if whole:
                added = 0
                for step in range(size):
                    place = first + (size - 1 - step if reverse != 0 else step) * inner
                    last = added
                    added += whole_element(operands, src, place)
                    put_whole(operands, dst, place, last if exclusive != 0 else added)
                continue
            total = 0.0
            for step in range(size):
                place = first + (size - 1 - step if reverse != 0 else step) * inner
                before = total
                total += fetch(operands, src, place)
                finish(operands, dst, chain, place, before if exclusive != 0 else total)

    return cumulative_sum, types.void(*[types.int64] * 9, types.voidptr)
