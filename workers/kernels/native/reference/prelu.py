"""Multiply negative elements by slopes, broadcast to the destination; an item is an element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import fetch, finish


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, weights, dst, chain, operands)."""

    def prelu(begin: int, end: int, src: int, weights: int, dst: int, chain: int, operands: Any) -> None:
        for item in range(begin, end):
            value = fetch(operands, src, item)
            if not value > 0.0:
                value = value * fetch(operands, weights, item)
            finish(operands, dst, chain, item, value)

    return prelu, types.void(*[types.int64] * 6, types.voidptr)
