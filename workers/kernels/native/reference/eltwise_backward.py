"""The gradient of a function of one variable; an item is an element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import fetch, finish
from .gradients import slope, slope_from_result


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src or dst, diff_dst, diff_src, chain, algorithm, from dst, alpha, beta, operands)."""

    def eltwise_backward(
        begin: int, end: int, data: int, diff_dst: int, diff_src: int, chain: int, algorithm: int, from_dst: int,
        alpha: float, beta: float, operands: Any,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            known = fetch(operands, data, item)
            if from_dst != 0:
                factor = slope_from_result(algorithm, known, alpha, beta)
            else:
                factor = slope(algorithm, known, alpha, beta)
            finish(operands, diff_src, chain, item, fetch(operands, diff_dst, item) * factor)

    return eltwise_backward, types.void(*[types.int64] * 8, types.float64, types.float64, types.voidptr)
