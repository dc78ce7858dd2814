"""Add any number of tensors, each times a scale; an item is an element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import fetch, finish, put_whole, whole_element, wraps_as
from .scalars import read_f64, read_s64


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (sources, dst, chain, operands).

    ``sources`` are in int64 their number and then, for each, the bytes from here to its record and the bits of its scale.
    """

    def total(begin: int, end: int, sources: int, dst: int, chain: int, operands: Any) -> None:
        whole = read_s64(chain) == 0
        for number in range(read_s64(sources)):
            entry = sources + 8 + 16 * number
            whole = whole and wraps_as(sources + read_s64(entry), dst) and read_f64(entry + 8) == 1.0
        for item in range(begin, end):
            if whole:
                added = 0
                for number in range(read_s64(sources)):
                    added += whole_element(operands, sources + read_s64(sources + 8 + 16 * number), item)
                put_whole(operands, dst, item, added)
                continue
            value = 0.0
            for number in range(read_s64(sources)):
                entry = sources + 8 + 16 * number
                value += read_f64(entry + 8) * fetch(operands, sources + read_s64(entry), item)
            finish(operands, dst, chain, item, value)

    return total, types.void(*[types.int64] * 5, types.voidptr)
