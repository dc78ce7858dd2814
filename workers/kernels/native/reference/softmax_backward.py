"""The gradient of softmax or its logarithm from the result; an item is a row along the axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import fetch, finish


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (dst, diff_dst, diff_src, chain, size of the axis, inner, logarithm, operands)."""

    def softmax_backward(
        begin: int, end: int, dst: int, diff_dst: int, diff_src: int, chain: int, size: int, inner: int,
        logarithm: int, operands: Any,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            outer = item // inner
            first = outer * size * inner + item - outer * inner
            total = 0.0
            for index in range(size):
                place = first + index * inner
                error = fetch(operands, diff_dst, place)
                total += error if logarithm != 0 else error * fetch(operands, dst, place)
            for index in range(size):
                place = first + index * inner
                result, error = fetch(operands, dst, place), fetch(operands, diff_dst, place)
                value = error - math.exp(result) * total if logarithm != 0 else result * (error - total)
                finish(operands, diff_src, chain, place, value)

    return softmax_backward, types.void(*[types.int64] * 9, types.voidptr)
