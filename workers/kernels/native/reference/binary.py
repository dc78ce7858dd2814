"""Combine two tensors, broadcast to the destination; an item is an element of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types

from .binaries import binary as combine
from .epilogue import fetch, finish


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src0, src1, dst, chain, algorithm, operands)."""

    def binary(begin: int, end: int, src0: int, src1: int, dst: int, chain: int, algorithm: int, operands: Any) -> None:
        for item in range(begin, end):
            value = combine(algorithm, fetch(operands, src0, item), fetch(operands, src1, item))
            finish(operands, dst, chain, item, value)

    return binary, types.void(*[types.int64] * 7, types.voidptr)
