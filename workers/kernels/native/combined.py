"""Combine elements of two or three tensors with any strides, by vectors if those of the destination are adjacent.

The table has the outer loops, innermost first, as (extent, bytes from step to step in each operand and in dst). An item is
``lines`` steps of the middle loop by ``chunk`` steps of the inner one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .combined_lanes import lanes_of, make_combination, make_rest
from .compiler import types
from .vec import LANES, iload


def make(isa: str, function: str, kind: str, result: str, moves: tuple[bool, ...]) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature.

    ``moves`` says which operands are adjacent along the inner loop, the others stay; it is empty for other strides.
    """
    adjacent = bool(moves)
    lanes = lanes_of(kind)
    moving = moves or (True, True, True)
    whole = make_combination(function, kind, result, lanes, moving)
    rest = make_rest(function, kind, result, moving)
    one = make_combination(function, kind, result, 1, (True, True, True))

    def kernel(
        begin: int, end: int, src0: int, src1: int, src2: int, dst: int, table: int, loops: int,
        middle: int, lines: int, middle0: int, middle1: int, middle2: int, middle_dst: int,
        inner: int, chunk: int, step0: int, step1: int, step2: int, step_dst: int,
    ) -> None:  # fmt: skip
        pieces = (inner + chunk - 1) // chunk
        groups = (middle + lines - 1) // lines
        for item in range(begin, end):
            # A division takes as long as some ten elements.
            outer, first, line = item, 0, 0
            if pieces > 1:
                outer = item // pieces
                first = (item - outer * pieces) * chunk
            if groups > 1:
                own = outer
                outer = own // groups
                line = (own - outer * groups) * lines
            x = src0 + line * middle0 + first * step0
            y = src1 + line * middle1 + first * step1
            z = src2 + line * middle2 + first * step2
            to = dst + line * middle_dst + first * step_dst
            for loop in range(loops):
                place = table + 40 * loop
                position = outer
                if loop + 1 < loops:
                    extent = iload(place)
                    outer //= extent
                    position -= outer * extent
                x += position * iload(place + 8)
                y += position * iload(place + 16)
                z += position * iload(place + 24)
                to += position * iload(place + 32)
            count = min(chunk, inner - first)
            for _ in range(line, min(middle, line + lines)):
                at = 0
                if adjacent:
                    while at + lanes <= count:
                        whole(x + at * step0, y + at * step1, z + at * step2, to + at * step_dst)
                        at += lanes
                    while at < count:
                        rest(x + at * step0, y + at * step1, z + at * step2, to + at * step_dst, count - at)
                        at += LANES
                else:
                    while at < count:
                        one(x + at * step0, y + at * step1, z + at * step2, to + at * step_dst)
                        at += 1
                x += middle0
                y += middle1
                z += middle2
                to += middle_dst

    return kernel, types.void(*[types.int64] * 20)
