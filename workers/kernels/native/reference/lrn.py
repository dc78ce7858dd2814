"""Local response normalisation over windows along consecutive dimensions; an item is an element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import fetch, finish
from .tensor import dim, rank


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, chain, first and last dimension of the window, its size, its elements, ...).

    Then alpha over the number of elements, beta, k and the operands.
    """

    def lrn(
        begin: int, end: int, src: int, dst: int, chain: int, first: int, last: int, size: int, count: int,
        alpha: float, beta: float, k: float, operands: Any,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            squares = 0.0
            for number in range(count):
                rest, offsets, source, step, inside = item, number, 0, 1, True
                for axis in range(rank(src) - 1, -1, -1):
                    extent = dim(src, axis)
                    outer = rest // extent
                    index = rest - outer * extent
                    rest = outer
                    if first <= axis <= last:
                        others = offsets // size
                        index += offsets - others * size - (size - 1) // 2
                        offsets = others
                        inside &= 0 <= index < extent
                    source += index * step
                    step *= extent
                if inside:
                    x = fetch(operands, src, source)
                    squares += x * x
            finish(operands, dst, chain, item, fetch(operands, src, item) / math.pow(k + alpha * squares, beta))

    return lrn, types.void(*[types.int64] * 9, *[types.float64] * 3, types.voidptr)
