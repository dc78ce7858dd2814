"""The circuit breaker: stop asking a Redis that does not answer, and probe it from time to time.

Closed, it lets every call through. After a failure it is open for a pause that doubles with every further failure (with
a random part, so that processes do not return in step); then one caller may probe, and success closes it. Of threads
that fail at the same time only the first counts; else a process with many threads would stay away for much longer.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final

#: First and longest time, in seconds, that a failing Redis is left alone.
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 30.0
#: Time, in seconds, that a probe has before the next caller may probe.
_PROBE_S: Final = 1.5


class CircuitBreaker:
    """Decide whether Redis may be asked now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._closed_until = 0.0
        self._probing = False
        self._reason = ""

    @property
    def reason(self) -> str:
        """Why the breaker opened last; empty while it is closed."""
        return self._reason

    def allows(self) -> bool:
        """Return whether the caller may ask Redis; while the breaker is open, at most one caller at a time may."""
        if self._failures == 0:
            return True
        now = time.monotonic()
        with self._lock:
            if self._failures == 0:
                return True
            if now < self._closed_until:
                return False
            self._closed_until = now + _PROBE_S
            self._probing = True
            return True

    def succeeded(self) -> None:
        """Close the breaker: Redis has answered."""
        if self._failures:
            with self._lock:
                self._failures = 0
                self._closed_until = 0.0
                self._probing = False
                self._reason = ""

    def failed(self, reason: str) -> None:
        """Open the breaker: Redis has not answered, or with an error."""
        with self._lock:
            self._reason = reason
            if self._failures and not self._probing:
                return
            pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(self._failures, 16))
            # Half of the pause is chance; os.urandom, since forked processes share the state of `random`.
            pause *= 0.5 + os.urandom(1)[0] / 512
            self._failures += 1
            self._closed_until = time.monotonic() + pause
            self._probing = False
