"""Whether a worker dozes: it does after a row of calls, because further ones are expected soon.

A client that submits many calls is interrupted by each wake-up that brings its worker to the client's processor. Such a worker
would call one function, sleep, and be woken for the next one. So a row goes on over sleeps, unless a client waits for its end.
"""

from __future__ import annotations

from typing import Final

#: Calls since the last sleep, or in a row, from which on further ones are expected soon.
_ROW: Final = 4
#: Seconds without a call that end a row.
_PAUSE_S: Final = 0.0002


class CallRow:
    """Counts the calls of a worker, for its next sleep."""

    __slots__ = ("_ended", "_row", "_since")

    def __init__(self) -> None:
        #: Calls since the last sleep; those in a row, also over sleeps; when the last one ended.
        self._since = 0
        self._row = 0
        self._ended = 0.0

    def begin(self, now: float, *, unread: bool) -> None:
        """Note that calls begin; ``unread``: a client has not read all earlier results, so it does not wait for each."""
        if not unread or now > self._ended + _PAUSE_S:
            self._row = 0

    def end(self, count: int, now: float) -> None:
        """Count calls that have ended."""
        self._since += count
        self._row += count
        self._ended = now

    def interrupt(self) -> None:
        """Note that a client waits for a call: it may submit the next one only then."""
        self._row = 0

    def sleep(self) -> bool:
        """Begin a sleep; return whether it is a doze."""
        since, self._since = self._since, 0
        if not since:
            self._row = 0
        return since >= _ROW or self._row >= _ROW
