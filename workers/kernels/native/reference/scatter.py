"""Replace the parts of a tensor at indices, or combine updates with them; an item is an element of the destination.

Each part has ``inner`` elements. The first ``axes`` dimensions of the source have an index. An index that is out of range does
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import are_whole, element, fetch, finish, put_whole, whole_element
from .gather import copy_element
from .scalars import read_s64
from .scattered import combined, combined_whole
from .tensor import dim, dtype


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, indices, updates, dst, chain, plain, reduction, axes, number of updates, inner, operands).

    See `copy_element` for ``plain``.
    """

    def scatter(
        begin: int, end: int, src: int, indices: int, updates: int, dst: int, chain: int, plain: int, reduction: int,
        axes: int, count: int, inner: int, operands: Any,
    ) -> None:  # fmt: skip
        whole = read_s64(chain) == 0 and are_whole(src, dst) and are_whole(updates, dst)
        for item in range(begin, end):
            row, total = item // inner, 0
            source, number, value = src, item, fetch(operands, src, item)
            if whole:
                total = whole_element(operands, src, item)
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
                    if whole:
                        added = whole_element(operands, updates, number)
                        total = combined_whole(reduction, total, added, dtype(dst))
                    else:
                        value = combined(reduction, value, fetch(operands, updates, number))
            if plain != 0:
                copy_element(operands, source, dst, chain, plain, item, number, True)
            elif whole:
                put_whole(operands, dst, item, total)
            else:
                finish(operands, dst, chain, item, value)

    return scatter, types.void(*[types.int64] * 12, types.voidptr)
