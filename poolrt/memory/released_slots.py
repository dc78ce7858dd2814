"""Slots that a client has released and not yet given back to the coordinator: they travel with its next message."""

from __future__ import annotations

from collections import deque

from poolrt.workers.ipc.protocol import NUMBERS_LIMIT


class ReleasedSlots:
    """The part of a client that collects released slots. It takes no lock: finalizers call it."""

    def __init__(self) -> None:
        self._released: deque[int] = deque()
        #: A number that is another one after each release.
        self.releases = 0

    def release(self, offset: int) -> None:
        """Give a lease on a slot back, with the next message. May be called from a finalizer: it takes no lock."""
        self._released.append(offset)
        self.releases += 1

    @property
    def unreleased(self) -> int:
        """Leases that are released here and not yet given back."""
        return len(self._released)

    def released(self) -> list[int]:
        """Return the leases to release with the next message, `NUMBERS_LIMIT` at most, and forget them."""
        found: list[int] = []
        while self._released and len(found) < NUMBERS_LIMIT:
            found.append(self._released.popleft())
        return found
