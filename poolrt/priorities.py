"""Priorities of runs and calls: their range, and where an entry goes among those that wait.

An entry goes before those of lower priorities and behind all others. The oldest entry of each priority is overtaken
`OVERTAKEN_LIMIT` times at most; then nothing overtakes it, so a stream of urgent entries delays the others and stops none. Only
the oldest has this bound: if each entry had it, a long row of entries would stop all urgent ones once 64 have overtaken it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

from poolrt.workers.ipc.protocol import PRIORITIES

#: How many entries of higher priorities overtake the oldest of a lower one.
OVERTAKEN_LIMIT: Final = 64


class Prioritized(Protocol):
    """An entry that waits; ``overtaken``: how often it was overtaken while it was the oldest of its priority."""

    @property
    def priority(self) -> int: ...

    overtaken: int


E = TypeVar("E", bound=Prioritized)


def check_priority(value: Any) -> int:
    """Return a priority. Raises TypeError for what is no integer, and ValueError for one out of range."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"priority must be an integer, got {value!r}")
    found = int(value.__index__())
    if found not in PRIORITIES:
        raise ValueError(f"priority must be from {PRIORITIES[0]} to {PRIORITIES[-1]}, got {found}")
    return found


def find_place(entries: Sequence[Prioritized], priority: int) -> int:
    """Return how many entries come before those of lower priorities at the end."""
    place = len(entries)
    while place and entries[place - 1].priority < priority:
        place -= 1
    return place


def divide(entries: Sequence[E]) -> tuple[list[E], list[E]]:
    """Divide entries of lower priority: those that go before a new entry, and those that it overtakes, which are counted."""
    before = [each for each in entries if each.overtaken >= OVERTAKEN_LIMIT]
    behind = [each for each in entries if each.overtaken < OVERTAKEN_LIMIT]
    seen: set[int] = set()
    for each in behind:
        if each.priority not in seen:
            seen.add(each.priority)
            each.overtaken += 1
    return before, behind
