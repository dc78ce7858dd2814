"""Copy the parts of a tensor that indices choose; an item is an element of the destination.

The destination is outer x indices x inner. ``axes`` dimensions of the source from ``axis`` on have an index. ``shared`` outer
parts have the same indices. An index that is out of range gives zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .data_types import move, store
from .epilogue import element, fetch, finish
from .tensor import base, dim, dtype, where


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, indices, dst, chain, plain, axis, axes, indices of an outer part, shared, inner, operands).

    With ``plain`` there are no attributes, and elements of one type are copied bit for bit.
    """

    def gather(
        begin: int, end: int, src: int, indices: int, dst: int, chain: int, plain: int, axis: int, axes: int, count: int,
        shared: int, inner: int, operands: Any,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            rest = item // inner
            outer = rest // count
            first = (outer // shared * count + rest - outer * count) * axes
            number, inside = outer, True
            for each in range(axes):
                size = dim(src, axis + each)
                index = int(element(operands, indices, first + each))
                index += size if index < 0 else 0
                inside &= 0 <= index < size
                number = number * size + index
            copy_element(operands, src, dst, chain, plain, item, number * inner + item - rest * inner, inside)

    return gather, types.void(*[types.int64] * 12, types.voidptr)


def copy_element(
    operands: Any, src: int, dst: int, chain: int, plain: int, item: int, number: int, inside: bool
) -> None:
    """Write element ``item`` of a destination: element ``number`` of the source, or 0 if that is not ``inside``."""
    if plain == 0:
        finish(operands, dst, chain, item, fetch(operands, src, number) if inside else 0.0)
        return
    target = base(operands, dst) + where(dst, item)
    if inside:
        move(base(operands, src) + where(src, number), dtype(src), target, dtype(dst))
    else:
        store(target, dtype(dst), 0.0)
