"""Renew leases at regular times while a creation runs, up to a hard limit.

The heartbeat has its own thread, since the creator's thread is busy compiling. It stops at the limit, so a hanging
creator loses its lease like a dead one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from .deferred_interrupts import deferred_interrupts

#: Beats in one term of a lease.
BEATS_PER_TERM: Final = 3
#: Longest wait, in seconds, for the end of the thread. A beat that hangs in Redis ends by itself later: beats carry
#: their owner's nonce, so one too many changes nothing.
_JOIN_S: Final = 0.05


class Heartbeat:
    """Call every beat each `interval` seconds until the block ends or `limit` seconds have gone by.

    A beat that returns False is not called again. Beats must not raise.
    """

    def __init__(self, interval: float, limit: float) -> None:
        self._interval = interval
        self._deadline = time.monotonic() + limit
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._beats: list[Callable[[], bool]] = []
        self._thread = threading.Thread(target=self._run, name="poolrt-heartbeat", daemon=True)

    def add(self, beat: Callable[[], bool]) -> None:
        """Call `beat` too from now on."""
        with self._lock:
            self._beats.append(beat)

    def __enter__(self) -> Self:
        try:
            with deferred_interrupts():
                self._thread.start()
        except BaseException:
            self._over.set()  # `__exit__` is not called
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with deferred_interrupts():
                self._over.set()
                self._thread.join(_JOIN_S)
        finally:
            self._over.set()  # an interrupt may come before the block

    def _run(self) -> None:
        while not self._over.wait(self._interval) and time.monotonic() < self._deadline:
            with self._lock:
                beats = list(self._beats)
            done = [beat for beat in beats if not beat()]
            if done:
                with self._lock:
                    self._beats = [beat for beat in self._beats if beat not in done]
