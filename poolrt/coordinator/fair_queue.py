"""Graphs that wait to be lowered: their owners take turns, so that many graphs of one delay no other's for long."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class FairQueue(Generic[K, T]):
    """A queue for each owner, served in turn. An owner can be delayed. Times are seconds of any steady clock.

    Not safe for several threads at a time.
    """

    def __init__(self) -> None:
        #: Owner -> its items, the oldest first; the owner whose turn it is comes first.
        self._items: dict[K, deque[T]] = {}
        self._delayed: dict[K, float] = {}

    def __bool__(self) -> bool:
        return bool(self._items)

    def put(self, owner: K, item: T) -> None:
        """Add an item behind its owner's others."""
        self._items.setdefault(owner, deque()).append(item)

    def take(self, now: float) -> tuple[K, T] | None:
        """Return the next item and its owner, whose next turn comes after all others'; None if there is none for now."""
        self._delayed = {owner: until for owner, until in self._delayed.items() if until > now}
        for owner in self._items:
            if owner not in self._delayed:
                items = self._items.pop(owner)
                item = items.popleft()
                if items:
                    self._items[owner] = items
                return owner, item
        return None

    def delay(self, owner: K, until: float) -> None:
        """Let `take` return no item of an owner before a time."""
        self._delayed[owner] = max(until, self._delayed.get(owner, until))

    def next_time(self) -> float | None:
        """Return the time when the first delay of an owner with items ends, None if there is none."""
        return min((until for owner, until in self._delayed.items() if owner in self._items), default=None)
