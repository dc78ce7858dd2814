"""Softmax and its logarithm; an item is a row along the axis, of elements ``inner`` apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import fetch, finish


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, chain, size of the axis, inner, logarithm, operands)."""

    def softmax(
        begin: int, end: int, src: int, dst: int, chain: int, size: int, inner: int, logarithm: int, operands: Any
    ) -> None:
        for item in range(begin, end):
            outer = item // inner
            first = outer * size * inner + item - outer * inner
            largest = -math.inf
            for index in range(size):
                x = fetch(operands, src, first + index * inner)
                largest = largest if largest > x or largest != largest else x
            total = 0.0
            for index in range(size):
                total += math.exp(fetch(operands, src, first + index * inner) - largest)
            for index in range(size):
                place = first + index * inner
                x = fetch(operands, src, place) - largest
                finish(operands, dst, chain, place, x - math.log(total) if logarithm != 0 else math.exp(x) / total)

    return softmax, types.void(*[types.int64] * 8, types.voidptr)
