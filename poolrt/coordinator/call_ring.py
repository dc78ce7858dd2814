"""One ring of calls as the coordinator knows it: its two sides, and the counts in its memory."""

from __future__ import annotations

from typing import Protocol

from poolrt.cachestore.deferred_dataclass import dataclass


class WatchedCalls(Protocol):
    """The counts of a call ring's memory."""

    @property
    def submitted(self) -> int: ...


@dataclass(slots=True, eq=False)
class CallRing:
    """A ring; ``view`` is its memory once there is one. ``left``: its client has disconnected."""

    number: int
    client: int
    worker: int
    view: WatchedCalls | None = None
    left: bool = False
    #: Entries that were submitted when `CallRings.find_active` looked.
    seen: int = 0
