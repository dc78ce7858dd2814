"""Notices who has been at one thing for too long: a process that hangs gives no sign, so only time tells of it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

#: Most seconds that one look counts: while this process itself stood still (a machine asleep), so did the others.
_STRIDE_S: Final = 5.0


class Limits(NamedTuple):
    """Seconds that a process may take to come up, for a run, and for a creation; 0: as long as it likes."""

    start_s: float
    run_s: float
    creation_s: float


class UnderWay(NamedTuple):
    """Who is at what, and how many seconds that may take; 0: as long as it likes."""

    who: int
    what: Hashable
    limit_s: float


class Watchdog:
    """Counts how long each stays at the same thing, from the first look that sees it there: never too short a time."""

    def __init__(self) -> None:
        self._since: dict[UnderWay, float] = {}
        self._clock = 0.0
        self._last = 0.0

    def look(self, now: float, under_way: Iterable[UnderWay]) -> list[UnderWay]:
        """Return what has been under way for longer than it may; ``now`` is in seconds of a steady clock."""
        self._clock += min(now - self._last, _STRIDE_S)
        self._last = now
        self._since = {item: self._since.get(item, self._clock) for item in under_way}
        return [item for item, since in self._since.items() if item.limit_s and self._clock - since >= item.limit_s]
