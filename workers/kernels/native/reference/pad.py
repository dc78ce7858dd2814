"""Add elements around a tensor, or cut some from it; an item is an element of the destination.

``margins`` has for each dimension: elements added before, elements cut at the start, elements kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from ..padded_index import padded_index
from .epilogue import finish
from .gather import copy_element
from .scalars import read_s64
from .tensor import dim, rank


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, chain, margins, plain, mode, value, operands); see `copy_element` for ``plain``."""

    def pad(
        begin: int,
        end: int,
        src: int,
        dst: int,
        chain: int,
        margins: int,
        plain: int,
        mode: int,
        value: float,
        operands: Any,
    ) -> None:
        for item in range(begin, end):
            number, step, rest, inside = 0, 1, item, True
            for axis in range(rank(src) - 1, -1, -1):
                extent = dim(dst, axis)
                outer = rest // extent
                margin = margins + 24 * axis
                index = padded_index(mode, rest - outer * extent - read_s64(margin), read_s64(margin + 16))
                inside &= index >= 0
                number += (index + read_s64(margin + 8)) * step
                step *= dim(src, axis)
                rest = outer
            if inside:
                copy_element(operands, src, dst, chain, plain, item, number, True)
            else:
                finish(operands, dst, chain, item, value)

    return pad, types.void(*[types.int64] * 8, types.float64, types.voidptr)
