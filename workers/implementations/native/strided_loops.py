"""Loops over elements of several tensors at once, each with a stride in bytes in every tensor. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from ...desc import MemoryDesc, item_size

#: Bytes of a result that one item of work writes, about.
ITEM_BYTES: Final = 16384


class StridedLoop(NamedTuple):
    """One loop: its extent, and the bytes from step to step in each tensor, that which is written last."""

    extent: int
    steps: tuple[int, ...]

    @property
    def written(self) -> int:
        """The bytes from step to step in the tensor that is written."""
        return self.steps[-1]


def nested(loops: Sequence[StridedLoop]) -> list[StridedLoop]:
    """Return loops in the order of the memory that is written, outermost first, neighbours that are one loop joined."""
    joined: list[StridedLoop] = []
    for loop in sorted((loop for loop in loops if loop.extent != 1), key=lambda loop: -loop.written):
        if joined and joined[-1].steps == tuple(loop.extent * step for step in loop.steps):
            joined[-1] = StridedLoop(joined[-1].extent * loop.extent, loop.steps)
        else:
            joined.append(loop)
    return joined


def byte_strides(md: MemoryDesc) -> tuple[int, ...]:
    """Return the bytes from index to index along each dimension of a tensor without blocks."""
    size = item_size(md.dtype)
    return tuple(size * stride for stride in md.outer_strides())


def broadcast_strides(md: MemoryDesc, ndims: int) -> tuple[int, ...]:
    """Return the same for a rank that a tensor is broadcast to: 0 along dimensions of 1 and those that it has not."""
    own = (0 if extent == 1 else step for extent, step in zip(md.dims, byte_strides(md), strict=True))
    return (*(0,) * (ndims - md.ndims), *own)


def as_table(loops: Sequence[StridedLoop]) -> list[int]:
    """Return the words of loops for a kernel's table, innermost first: extent, then the steps."""
    return [word for loop in reversed(loops) for word in (loop.extent, *loop.steps)]


def steps(loops: Sequence[StridedLoop]) -> int:
    """Return how often the body of loops runs."""
    return math.prod(loop.extent for loop in loops)


def refuse_blocks(*tensors: MemoryDesc) -> str | None:
    """Return why strides cannot describe the tensors, or None."""
    for md in tensors:
        if md.layout.blocks:
            return f"layout {md.tag}; blocks are not supported"
    return None
