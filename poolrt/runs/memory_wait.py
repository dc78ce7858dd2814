"""A run that lacks memory of the arena waits for others of its client, which have it."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .loaded_model import LoadedModel

#: Seconds of the first and of the longest wait for a run on a ring, each twice as long as the one before.
_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.03
#: Seconds in which other threads take the outputs of runs that have ended, and drop them.
_GRACE_S: Final = 1.0


class MemoryWait:
    """The waits of one run that begins, until a time of `time.monotonic`. It holds no memory meanwhile.

    In one that is ``performed`` the caller waits for the run, as other threads may do.
    """

    __slots__ = ("_deadline", "_messages", "_pause_s", "_performed", "_rings", "_until")

    def __init__(self, deadline: float | None = None, *, performed: bool = False) -> None:
        self._deadline = deadline
        self._performed = performed
        self._pause_s = _PAUSE_S
        self._messages = self._rings = 0
        #: When the outputs of other threads are waited for no longer, once nothing is in flight.
        self._until: float | None = None

    def look(self, loaded: LoadedModel) -> None:
        """Note what may have memory, before some is asked for: runs of the model by messages, and any on this client's rings."""
        self._messages = loaded.running
        self._rings = sum(ring.load for ring in loaded.client.rings.all)

    def has_passed(self, loaded: LoadedModel) -> bool:
        """Wait until some of it may have ended; False if there was none, or in a thread that resolves futures.

        Raises TimeoutError after the deadline, and what `Client.wait_while` raises.
        """
        if loaded.client.in_own_thread:
            return False
        if self._messages and not self._rings:
            loaded.client.wait_while(partial(loaded.has_running, self._messages), self._deadline)
        elif self._rings:
            self._until = None
            self._pause()
        elif self._performed and self._until is None:
            self._until = time.monotonic() + _GRACE_S
            self._pause_s = _PAUSE_S
            self._pause()
        elif self._until is not None and time.monotonic() < self._until:
            self._pause()
        else:
            return False
        return True

    def _pause(self) -> None:
        left = self._pause_s if self._deadline is None else min(self._pause_s, self._deadline - time.monotonic())
        if left <= 0:
            raise TimeoutError
        time.sleep(left)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
