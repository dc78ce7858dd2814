"""Sleeps on another processor than that of a client whose calls are short.

Linux wakes the reader of a socket on the processor of the writer, also while another one is idle. A worker with a row of short
calls then takes turns with its client on one processor (docs/decisions/0064-workers-away-from-the-client.md).
"""

from __future__ import annotations

import os


class Apart:
    """Takes one processor out of the set of the calling thread, until `rejoin`."""

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._before: set[int] = set()
        self._now: set[int] = set()

    def leave(self, processor: int) -> None:
        """Run on all processors of the set except one, if there are others. Call `rejoin` afterwards."""
        self._before = set()
        before = os.sched_getaffinity(0)
        now = before - {processor}
        if not now or now == before:
            return
        try:
            os.sched_setaffinity(0, now)
        except OSError:
            return  # the others are not there any more
        self._before, self._now = before, now

    def rejoin(self) -> None:
        """Put the set back that `leave` has changed, unless it is another one by now."""
        before = self._before
        if not before:
            return
        self._before = set()
        if os.sched_getaffinity(0) != self._now:
            return
        try:
            os.sched_setaffinity(0, before)
        except OSError:
            pass  # none of them is there any more
