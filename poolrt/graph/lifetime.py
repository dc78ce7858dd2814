"""Places buffers in one workspace; buffers that are never alive together may share bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: Alignment of every buffer, in bytes: a pair of cache lines, and the alignment of sub-buffers on OpenCL devices.
ALIGNMENT: Final = 128


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Bytes needed from step ``first`` (which writes them) to step ``last`` (the last that reads them), both included."""

    nbytes: int
    first: int
    last: int


def place(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Return an offset for each buffer and the size of the workspace, in bytes.

    Largest first, each at the lowest offset that is free for its whole life (the greedy-by-size heuristic of
    Pisarchyk and Lee, 2020, "Efficient Memory Management for Deep Neural Net Inference").
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    total = 0
    for index in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, i)):
        life = lifetimes[index]
        size = aligned(life.nbytes)
        offset = 0
        for other in sorted(placed, key=offsets.__getitem__):
            theirs = lifetimes[other]
            if theirs.last < life.first or life.last < theirs.first:
                continue
            if offset + size <= offsets[other]:
                break
            offset = max(offset, offsets[other] + aligned(theirs.nbytes))
        offsets[index] = offset
        placed.append(index)
        total = max(total, offset + size)
    return offsets, total


def aligned(nbytes: int) -> int:
    """Return the bytes a buffer takes, alignment included; never 0, so that every buffer has a place of its own."""
    return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)
