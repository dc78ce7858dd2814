"""Rotate pairs of elements of rows; an item is an element of the destination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import fetch, finish


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, cosine, sine, dst, chain, depth, pairs, interleaved, operands)."""

    def rotary(
        begin: int, end: int, src: int, cosine: int, sine: int, dst: int, chain: int, depth: int, pairs: int,
        interleaved: int, operands: Any,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            row = item // depth
            at = item - row * depth
            value = fetch(operands, src, item)
            if at < 2 * pairs:
                second = at & 1 if interleaved != 0 else at // pairs
                pair = at >> 1 if interleaved != 0 else at - second * pairs
                apart = 1 if interleaved != 0 else pairs
                other = fetch(operands, src, item - apart if second != 0 else item + apart)
                angle = row * pairs + pair
                turned = other * fetch(operands, sine, angle)
                value = value * fetch(operands, cosine, angle)
                value = value + turned if second != 0 else value - turned
            finish(operands, dst, chain, item, value)

    return rotary, types.void(*[types.int64] * 10, types.voidptr)
