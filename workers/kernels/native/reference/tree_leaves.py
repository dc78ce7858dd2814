"""Follow the nodes of decision trees; an item is one row in one tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import element, put_whole
from .tensor import dim


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, nodes, limits, roots, dst, levels, operands)."""

    def tree_leaves(
        begin: int, end: int, src: int, nodes: int, limits: int, roots: int, dst: int, levels: int, operands: Any
    ) -> None:
        columns, last, bounds, trees = dim(src, 1), dim(nodes, 0) - 1, dim(limits, 1), dim(dst, 1)
        for item in range(begin, end):
            row = item // trees
            at = _known(int(element(operands, roots, item - row * trees)), last)
            for _ in range(levels):
                column = _known(int(element(operands, nodes, 4 * at)), columns - 1)
                value = element(operands, src, row * columns + column)
                passes = value <= element(operands, limits, bounds * at + bounds - 1)
                if bounds == 2:
                    passes &= value >= element(operands, limits, 2 * at)
                if value != value:
                    passes = element(operands, nodes, 4 * at + 3) != 0.0
                at = _known(int(element(operands, nodes, 4 * at + (1 if passes else 2))), last)
            put_whole(operands, dst, item, at)

    return tree_leaves, types.void(*[types.int64] * 8, types.voidptr)


def _known(number: int, last: int) -> int:
    """Return a number from 0 to the last one, which is that of others."""
    return number if number >= 0 and number <= last else last
