"""Places buffers in one workspace; buffers that are never alive together may share bytes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass

#: Alignment of every buffer, in bytes: a pair of cache lines, and the alignment of sub-buffers on OpenCL devices.
ALIGNMENT: Final = 128
#: Buffers that live together with one, among which a gap is looked for: some 0.5 ms for so many.
NEIGHBOURS_LIMIT: Final = 2048


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Bytes needed from step ``first`` (which writes them) to step ``last`` (the last that reads them), both included."""

    nbytes: int
    first: int
    last: int


def place(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Return an offset for each buffer and the size of the workspace, in bytes.

    Largest first, each at the lowest offset that is free for its whole life (the greedy-by-size heuristic of
    Pisarchyk and Lee, 2020, "Efficient Memory Management for Deep Neural Net Inference"). A buffer that lives together with
    more than `NEIGHBOURS_LIMIT` others is placed above all of them, so that the time is about proportional to their number.
    """
    offsets = [0] * len(lifetimes)
    placed = _Placed(1 + max((life.last for life in lifetimes), default=0))
    total = 0
    for index in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, i)):
        life = lifetimes[index]
        size = aligned(life.nbytes)
        neighbours = placed.find_neighbours(life)
        if len(neighbours) > NEIGHBOURS_LIMIT:
            offset = total
        else:
            offset = 0
            for other in sorted(neighbours, key=offsets.__getitem__):
                if offset + size <= offsets[other]:
                    break
                offset = max(offset, offsets[other] + aligned(lifetimes[other].nbytes))
        offsets[index] = offset
        placed.add(index, life)
        total = max(total, offset + size)
    return offsets, total


class _Placed:
    """The buffers placed so far, by the steps that they live: in a segment tree, and in the order of their first steps."""

    def __init__(self, steps: int) -> None:
        self._leaves = 1 << (steps - 1).bit_length()
        self._tree: list[list[int]] = [[] for _ in range(2 * self._leaves)]
        self._starts: list[tuple[int, int]] = []

    def add(self, index: int, life: Lifetime) -> None:
        """Add a buffer by its number."""
        insort(self._starts, (life.first, index))
        left, right = self._leaves + life.first, self._leaves + life.last + 1
        while left < right:
            if left & 1:
                self._tree[left].append(index)
                left += 1
            if right & 1:
                right -= 1
                self._tree[right].append(index)
            left //= 2
            right //= 2

    def find_neighbours(self, life: Lifetime) -> list[int]:
        """Return the numbers of the buffers that live together with another, or some of them if they exceed the limit."""
        found: list[int] = []
        node = self._leaves + life.first
        while node and len(found) <= NEIGHBOURS_LIMIT:
            found += self._tree[node][: NEIGHBOURS_LIMIT + 1]
            node //= 2
        start = bisect_left(self._starts, (life.first + 1, 0))
        end = min(bisect_left(self._starts, (life.last + 1, 0)), start + NEIGHBOURS_LIMIT + 1)
        found += [index for _, index in self._starts[start:end]]
        return found


def aligned(nbytes: int) -> int:
    """Return the bytes a buffer takes, alignment included; never 0, so that every buffer has a place of its own."""
    return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)
