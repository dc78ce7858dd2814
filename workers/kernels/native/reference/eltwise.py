"""Apply a function of one variable; an item is an element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import fetch, finish
from .functions import eltwise as apply


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, chain, algorithm, alpha, beta, operands)."""

    def eltwise(
        begin: int, end: int, src: int, dst: int, chain: int, algorithm: int, alpha: float, beta: float, operands: Any
    ) -> None:
        for item in range(begin, end):
            value = apply(algorithm, fetch(operands, src, item), alpha, beta)
            finish(operands, dst, chain, item, value)

    return eltwise, types.void(*[types.int64] * 6, types.float64, types.float64, types.voidptr)
