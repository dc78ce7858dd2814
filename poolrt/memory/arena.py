"""The arena: one sealed piece of shared memory for all tensors of a pool, and the allocator of its slots.

Fresh shared memory costs 6 to 20 times a warm copy, because the kernel zeroes each page at its first touch. So all
tensors share one segment, and the slot freed last is allocated first. Slot sizes step by an eighth of a power of two:
rounding wastes at most 12.5 %, and tensors of similar size can use the same slots.
"""

from __future__ import annotations

import bisect
import fcntl
import math
import os
from functools import lru_cache
from typing import Final

#: Bytes behind a tensor that kernels may read.
PADDING: Final = 64
#: Slots are multiples of this and start on one.
GRAIN: Final = 128
PAGE: Final = 4096
#: Slots from this size on are whole pages, which can be returned to the system.
PAGED: Final = 8 * PAGE


class ArenaExhausted(MemoryError):
    """No slot of the requested size is free. Raised by `Allocator.take`.

    ``needed`` and ``largest`` (free in one piece) are bytes, ``free`` the sum of all free bytes, ``nbytes`` the whole.
    """

    def __init__(self, needed: int, largest: int, free: int, nbytes: int) -> None:
        super().__init__(needed, largest, free, nbytes)
        self.needed, self.largest, self.free, self.nbytes = needed, largest, free, nbytes

    def __str__(self) -> str:
        return (
            f"the arena of {self.nbytes} bytes is too small: {self.needed} bytes are needed, {self.free} are free "
            f"({self.largest} in one piece); raise the setting arena_bytes (POOLRT_ARENA_BYTES)"
        )


def make_arena(nbytes: int) -> int:
    """Make an arena of ``nbytes`` (rounded up to pages) and return its descriptor. Pages are allocated on first touch.

    Guarantees: its size is sealed, so a mapping of it never faults. It has no name, so the kernel frees it with the
    last process that holds it, however that process ends.
    """
    return make_sealed_memory("poolrt-arena", nbytes)


def make_sealed_memory(name: str, nbytes: int) -> int:
    """Return the descriptor of new shared memory of ``nbytes``, rounded up to pages, whose size is sealed."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, -(-nbytes // PAGE) * PAGE)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError:
        os.close(fd)
        raise
    return fd


@lru_cache(1024)  # callers ask for the same few sizes at each run
def slot_size(nbytes: int) -> int:
    """Return the size of the slot for a tensor of ``nbytes``, padding included."""
    need = nbytes + PADDING
    if need <= 8 * GRAIN:
        return -(-need // GRAIN) * GRAIN
    step = 1 << ((need - 1).bit_length() - 4)  # a page from PAGED on
    return -(-need // step) * step


class Allocator:
    """Allocates slots of an arena of ``nbytes``. Pure bookkeeping: it touches no memory."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        #: Bytes in allocated slots.
        self.used = 0
        self._top = 0
        self._sizes: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}
        self._holes: list[tuple[int, int]] = []  # offset and size, by offset

    def take(self, nbytes: int) -> int:
        """Return the offset of a slot for ``nbytes``. Raises ArenaExhausted."""
        size = slot_size(nbytes)
        offset = self._find(size)
        if offset is None and (self._holes or any(self._free.values())):
            self._consolidate()
            offset = self._find(size)
        if offset is None:
            largest = max([self.nbytes - self._top, *(s for _, s in self._holes)])
            raise ArenaExhausted(size, largest, self.nbytes - self.used, self.nbytes)
        self._sizes[offset] = size
        self.used += size
        return offset

    def free(self, offset: int) -> None:
        """Free a slot. Raises KeyError if it is not allocated."""
        size = self._sizes.pop(offset)
        self.used -= size
        self._free.setdefault(size, []).append(offset)

    def size(self, offset: int) -> int:
        """Return the bytes of an allocated slot. Raises KeyError for any other."""
        return self._sizes[offset]

    def trim(self, keep: int) -> list[tuple[int, int]]:
        """Retire free slots of whole pages, coldest first, until such slots hold at most ``keep`` bytes.

        Return their offsets and sizes: the caller may return those pages to the system before it takes slots again.
        """
        paged = {size: offsets for size, offsets in self._free.items() if size >= PAGED}
        spare = sum(size * len(offsets) for size, offsets in paged.items()) - keep
        retired: list[tuple[int, int]] = []
        for size in sorted(paged, reverse=True):
            while spare > 0 and paged[size]:
                retired.append((paged[size].pop(0), size))
                spare -= size
        for offset, size in retired:
            self._keep_hole(offset, size)
        return retired

    def compact(self) -> None:
        """Return the memory of tables that have been much larger, and join small free slots that lie side by side."""
        self._sizes = dict(self._sizes)
        self._consolidate(PAGED)

    def _find(self, size: int) -> int | None:
        free = self._free.get(size)
        if free:
            return free.pop()
        grain = PAGE if size >= PAGED else GRAIN
        best = -1
        for number, (offset, length) in enumerate(self._holes):
            slack = -offset % grain
            if length >= size + slack and (best < 0 or length < self._holes[best][1]):
                best = number
        if best >= 0:
            offset, length = self._holes.pop(best)
            start = offset + -offset % grain
            self._keep_hole(start + size, offset + length - start - size)
            self._keep_hole(offset, start - offset)
            return start
        start = self._top + -self._top % grain
        if start + size > self.nbytes:
            return None
        self._keep_hole(self._top, start - self._top)
        self._top = start + size
        return start

    def _keep_hole(self, offset: int, length: int) -> None:
        if length:
            bisect.insort(self._holes, (offset, length))

    def _consolidate(self, below: float = math.inf) -> None:
        """Turn free slots of sizes below a limit into holes, and neighbours into one."""
        free = {size: self._free.pop(size) for size in [*self._free] if size < below}
        pieces = sorted(self._holes + [(offset, size) for size, offsets in free.items() for offset in offsets])
        self._holes = []
        for offset, length in pieces:
            if self._holes and sum(self._holes[-1]) == offset:
                before, size = self._holes.pop()
                offset, length = before, size + length
            self._holes.append((offset, length))
        if self._holes and sum(self._holes[-1]) == self._top:
            self._top = self._holes.pop()[0]
