"""Take elements of one tensor or of another, all broadcast to the destination; an item is an element of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import fetch
from .gather import copy_element


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (condition, src0, src1, dst, chain, plain, operands); see `copy_element` for ``plain``."""

    def selection(
        begin: int, end: int, condition: int, src0: int, src1: int, dst: int, chain: int, plain: int, operands: Any
    ) -> None:
        for item in range(begin, end):
            source = src0 if fetch(operands, condition, item) != 0.0 else src1
            copy_element(operands, source, dst, chain, plain, item, item, True)

    return selection, types.void(*[types.int64] * 8, types.voidptr)
