"""Staging: where the constants of one load lie until a worker has reordered them.

One slot, cut up again and again from its start: memory that nobody has touched before costs about as much as filling it
twice, so a load of many constants passes them all through the same few pages. A constant that is larger than the slot
gets one of its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from poolrt.arena import ArenaExhausted

from .leases import Leases

#: Bytes of constants that are written but not yet in their final layout.
STAGING_BYTES: Final = 16 * 1024 * 1024
#: Every constant starts on a boundary of its own cache lines.
_ALIGNMENT: Final = 128


@dataclass(frozen=True, slots=True)
class Staged:
    """One constant in staging: it lies at ``offset``, in a slot that starts at ``slot``."""

    slot: int
    offset: int
    nbytes: int


class Staging:
    """Places for raw constants, on leases of ``holder``. ``total`` is what all of them take together, in bytes."""

    def __init__(self, leases: Leases, holder: Hashable, total: int) -> None:
        self._leases = leases
        self._holder = holder
        self._taken: dict[int, Staged] = {}
        self._nbytes = min(STAGING_BYTES, total)
        self._slot: int | None = None

    def take(self, constant: int, nbytes: int) -> Staged | None:
        """Return a place for a constant, or None where one has to be given back first.

        Raises ArenaExhausted where there is no memory and nothing to wait for.
        """
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
        """Take a place back: its constant has been reordered."""
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
                self._nbytes = 0  # one at a time, then
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
