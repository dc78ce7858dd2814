"""Replace the parts of a tensor at indices, or combine updates with them; an item is an element of the destination.

Each part has ``inner`` elements. The first ``axes`` dimensions of the source have an index. An index that is out of range does
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import element, fetch, finish
from .gather import copy_element
from .tensor import dim


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, indices, updates, dst, chain, plain, reduction, axes, number of updates, inner, operands).

    See `copy_element` for ``plain``.
    """

    def scatter(
        begin: int, end: int, src: int, indices: int, updates: int, dst: int, chain: int, plain: int, reduction: int,
        axes: int, count: int, inner: int, operands: Any,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            row = item // inner
            source, number, value = src, item, fetch(operands, src, item)
            for update in range(count):
                found, inside = 0, True
                for axis in range(axes):
                    size = dim(src, axis)
                    index = int(element(operands, indices, update * axes + axis))
                    index += size if index < 0 else 0
                    inside &= 0 <= index < size
                    found = found * size + index
                if inside and found == row:
                    source, number = updates, update * inner + item - row * inner
                    value = combined(reduction, value, fetch(operands, updates, number))
            if plain != 0:
                copy_element(operands, source, dst, chain, plain, item, number, True)
            else:
                finish(operands, dst, chain, item, value)

    return scatter, types.void(*[types.int64] * 12, types.voidptr)


def combined(reduction: int, value: float, update: float) -> float:
    """Return an update combined with the value before it, by the number of the reduction; NaN stays NaN."""
    if reduction == 1:
        return value + update
    if reduction == 2:
        return value * update
    if reduction == 0 or value != value:
        return update if reduction == 0 else value
    if reduction == 3:
        return value if value < update else update
    return value if value > update else update
