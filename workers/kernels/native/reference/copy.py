"""Copy a tensor into another, or into a part of it: reorder, concat and shuffle; an item is an element of the source.

Both tensors are outer x axis x inner. Index ``a`` of the source's axis goes to ``first + a % group * rows + a // group``
of the destination's: one after the other for a group of 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .data_types import move
from .epilogue import fetch, finish
from .tensor import base, dtype, where


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, chain, plain, src axis, dst axis, inner, first, group, rows, operands).

    With ``plain`` there are no attributes, and elements of one type are copied bit for bit. ``plain`` of 2 says that integers
    that become others lose high bits.
    """

    def copy(
        begin: int, end: int, src: int, dst: int, chain: int, plain: int,
        src_axis: int, dst_axis: int, inner: int, first: int, group: int, rows: int, operands: Any,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            rest = item // inner
            outer = rest // src_axis
            index = rest - outer * src_axis
            number = index // group
            index = first + (index - number * group) * rows + number
            target = (outer * dst_axis + index) * inner + item - rest * inner
            if plain != 0:
                source = base(operands, src) + where(src, item)
                move(source, dtype(src), base(operands, dst) + where(dst, target), dtype(dst), plain == 2)
            else:
                finish(operands, dst, chain, target, fetch(operands, src, item))

    return copy, types.void(*[types.int64] * 12, types.voidptr)
