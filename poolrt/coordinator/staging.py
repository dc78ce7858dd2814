"""Staging: memory for the constants of one load until a worker has reordered them.

All constants of a load pass through one slot, because the first touch of a page costs about as much as filling it
twice. A constant that is larger than this slot gets a slot of its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass
from poolrt.memory.arena import ArenaExhausted

from .leases import Leases

#: Bytes of constants that are written but not yet in their final layout.
STAGING_BYTES: Final = 16 * 1024 * 1024
#: Constants that are written but not yet in their final layout: finding a gap between them takes some 10 us.
STAGED_LIMIT: Final = 128
#: Bytes; no two constants share a cache line.
_ALIGNMENT: Final = 128


@dataclass(frozen=True, slots=True)
class Staged:
    """One constant in staging: at ``offset``, in a slot that starts at ``slot``."""

    slot: int
    offset: int
    nbytes: int


class Staging:
    """Places for raw constants, on leases of ``holder``. ``total`` is their size together, in bytes."""

    def __init__(self, leases: Leases, holder: Hashable, total: int) -> None:
        self._leases = leases
        self._holder = holder
        self._taken: dict[int, Staged] = {}
        self._nbytes = min(STAGING_BYTES, total)
        self._slot: int | None = None

    def take(self, constant: int, nbytes: int) -> Staged | None:
        """Return a place for a constant, or None if another has to be released first.

        Raises ArenaExhausted if there is no memory and no place to wait for.
        """
        if len(self._taken) >= STAGED_LIMIT:
            return None
        found = self._place(nbytes)
        if found is None and not self._taken:
            slot = self._leases.take([nbytes], self._holder)[0]
            found = Staged(slot, slot, nbytes)
        if found is not None:
            self._taken[constant] = found
        return found

    def __getitem__(self, constant: int) -> Staged:
        return self._taken[constant]

    def give(self, constant: int) -> None:
        """Release the place of a constant that has been reordered."""
        staged = self._taken.pop(constant)
        if staged.slot != self._slot:
            self._leases.release(staged.slot, self._holder)

    def _place(self, nbytes: int) -> Staged | None:
        """Return the lowest gap of the common slot that is large enough."""
        if nbytes > self._nbytes:
            return None
        if self._slot is None:
            try:
                self._slot = self._leases.take([self._nbytes], self._holder)[0]
            except ArenaExhausted:
                self._nbytes = 0  # from now on one constant at a time, in a slot of its own
                return None
        start = 0
        inside = sorted(s.offset - self._slot for s in self._taken.values() if s.slot == self._slot)
        ends = {s.offset - self._slot: s.offset - self._slot + s.nbytes for s in self._taken.values()}
        for offset in inside:
            if offset - start >= nbytes:
                break
            start = -(-ends[offset] // _ALIGNMENT) * _ALIGNMENT
        if start + nbytes > self._nbytes:
            return None
        return Staged(self._slot, self._slot + start, nbytes)
