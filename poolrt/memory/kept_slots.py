"""Slots of the arena that a client keeps for later tensors of the same size."""

from __future__ import annotations

from collections.abc import Sequence

from poolrt.memory.arena import PAGE, slot_size


class KeptSlots:
    """At most ``limit`` bytes of slots, and ``count`` of each size if that is not 0, ``small`` up to a page. The caller locks."""

    __slots__ = ("_count", "_limit", "_nbytes", "_slots", "_small")

    def __init__(self, limit: int, count: int = 0, small: int = 0) -> None:
        self._limit = limit
        self._count = count
        self._small = small
        self._nbytes = 0
        self._slots: dict[int, list[int]] = {}

    def take(self, nbytes: int) -> int:
        """Return the offset of a kept slot for ``nbytes``, -1 if there is none."""
        size = slot_size(nbytes)
        slots = self._slots.get(size)
        if not slots:
            return -1
        self._nbytes -= size
        return slots.pop()

    def has_room(self, nbytes: int, waiting: Sequence[int]) -> bool:
        """Return whether a slot for ``nbytes`` can probably be kept besides those for ``waiting``. Takes no lock."""
        size = needed = slot_size(nbytes)
        if waiting:
            needed += sum(map(slot_size, waiting))
        slots = self._slots.get(size, ())
        return self._nbytes + needed <= self._limit and self._has_place(size, len(slots) + len(waiting))

    def keep(self, offset: int, nbytes: int) -> bool:
        """Keep a slot for ``nbytes``; return whether there is room for it."""
        size = slot_size(nbytes)
        slots = self._slots.setdefault(size, [])
        if self._nbytes + size > self._limit or not self._has_place(size, len(slots)):
            return False
        slots.append(offset)
        self._nbytes += size
        return True

    def _has_place(self, size: int, kept: int) -> bool:
        count = self._small if size <= PAGE else self._count
        return not self._count or kept < count

    def clear(self) -> list[int]:
        """Return the offsets of all slots and keep them no longer."""
        found = [offset for slots in self._slots.values() for offset in slots]
        self._slots.clear()
        self._nbytes = 0
        return found
