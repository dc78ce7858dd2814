"""The watchdog finds processes that work on one thing for too long: only time shows that a process hangs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

#: Most seconds that one check counts: while this process was stopped (the machine slept), so were the others.
_STRIDE_S: Final = 5.0


class Limits(NamedTuple):
    """Seconds that a process may take to start, for a run, and for a creation; 0: no limit."""

    start_s: float
    run_s: float
    creation_s: float


class UnderWay(NamedTuple):
    """What a process works on, and how many seconds that may take; 0: no limit."""

    process: int
    what: Hashable
    limit_s: float


class Watchdog:
    """Measures how long each process works on one thing, from the first check on, so that no limit is cut short."""

    def __init__(self) -> None:
        self._since: dict[UnderWay, float] = {}
        self._clock = 0.0
        self._last = 0.0

    def check(self, now: float, under_way: Iterable[UnderWay]) -> list[UnderWay]:
        """Return what exceeds its limit; ``now`` is in seconds of a steady clock."""
        self._clock += min(now - self._last, _STRIDE_S)
        self._last = now
        self._since = {item: self._since.get(item, self._clock) for item in under_way}
        return [item for item, since in self._since.items() if item.limit_s and self._clock - since >= item.limit_s]
