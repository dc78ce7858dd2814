"""Whether the thread of futures has to drive the rings of calls, because no other thread does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: Seconds without a drive after which the thread of futures drives, and for which it looks after the last call has ended.
TICK_S: Final = 0.005
_LINGER_S: Final = 0.25


class DriveWatch:
    """Counts the ``drives`` of all threads; the thread of futures looks at them while it is not ``parked``."""

    __slots__ = ("_active", "_seen", "_seen_at", "adopted", "drives", "parked")

    def __init__(self) -> None:
        self.parked = True
        #: Whether the thread of futures drives.
        self.adopted = False
        #: How often the rings were driven; the same when a look found a drive, and when that was.
        self.drives = 0
        self._seen = 0
        self._seen_at = 0.0
        #: When a call was last under way.
        self._active = 0.0

    def next_look(self, outstanding: Callable[[], int]) -> float | None:
        """Return the seconds until the next look; None if it is parked. ``outstanding`` counts calls that are not settled."""
        if outstanding():
            self._active = time.monotonic()
        elif time.monotonic() - self._active > _LINGER_S:
            self.parked = True
            if not outstanding():  # else a thread that submits may not have seen that it is parked
                return None
        self.parked = False
        return TICK_S

    def look(self, *, outstanding: bool, waits: bool) -> None:
        """Let the thread of futures drive if no thread has done so for a while, nor ``waits`` for results now."""
        now = time.monotonic()
        if self.parked or waits or not outstanding or self.drives != self._seen:
            self._seen, self._seen_at = self.drives, now
        self.adopted = now - self._seen_at >= TICK_S
