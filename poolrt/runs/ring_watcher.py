"""A thread for futures of runs on one ring that have callbacks, or that threads wait for in another way than `result`.

It exists while there are such futures. The others are resolved by the threads that wait for them.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from poolrt.errors import PoolError, PoolRefused

if TYPE_CHECKING:
    from poolrt.connection.client import Client
    from poolrt.connection.futures import PoolFuture

    from .client_ring import ClientRing
    from .submitted_run import SubmittedRun

#: Seconds that the thread waits for a further future before it ends.
_IDLE_S: Final = 1.0
#: Seconds between looks whether futures have ended whose runs left the ring, behind one that its worker executes.
_LOOK_S: Final = 0.25


class RingWatcher:
    """The futures of one ring that a thread resolves as soon as their entries have ended, in the order of the ring."""

    __slots__ = ("_changed", "_lock", "_ring", "_thread", "_wanted")

    def __init__(self, ring: ClientRing) -> None:
        self._ring = weakref.ref(ring)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._wanted: list[tuple[PoolFuture[Any], SubmittedRun]] = []
        self._thread: threading.Thread | None = None

    def watch(self, future: PoolFuture[Any], submitted: SubmittedRun, client: Client) -> None:
        """Resolve a future. Raises PoolRefused if there can be no further thread."""
        with self._lock:
            if any(each is future for each, _ in self._wanted):
                return
            self._wanted.append((future, submitted))
            self._changed.notify()
            if self._thread is None:
                ring = self._ring()
                self._thread = threading.Thread(
                    target=self._watch, args=(ring, client), name="poolrt-ring", daemon=True
                )
                try:
                    self._thread.start()
                except RuntimeError as error:
                    self._thread = None
                    self._wanted.pop()
                    text = f"no thread for futures can be started: {error}"
                    raise PoolRefused(f"{text}; raise the limits of processes and memory (ulimit -u, -v)") from error

    def _watch(self, ring: ClientRing, client: Client) -> None:
        client.open_futures.watchers.add(threading.get_ident())
        try:
            while self._has_wanted():
                self._resolve_ended(ring, client)
        finally:
            client.open_futures.watchers.discard(threading.get_ident())

    def _resolve_ended(self, ring: ClientRing, client: Client) -> None:
        """Wait for the first entry and resolve the futures that have ended; keep none of them, for memory of the arena."""
        ended = False
        try:
            entries = [entry for _, submitted in [*self._wanted] if (entry := submitted.entry) is not None]
            if entries:
                ring.wait(min(entries, key=attrgetter("sequence")), client, time.monotonic() + _LOOK_S)
        except TimeoutError:
            pass
        except PoolError:
            ended = True  # the connection has ended: the futures get that error
        for future, submitted in [*self._wanted]:
            if ended or submitted.has_ended:
                self._resolve(future, submitted)

    def _has_wanted(self) -> bool:
        """Wait for futures; return whether there are any, and note the thread's end otherwise."""
        with self._lock:
            if not self._wanted:
                self._changed.wait(_IDLE_S)
            if not self._wanted:
                self._thread = None
            return bool(self._wanted)

    def _resolve(self, future: PoolFuture[Any], submitted: SubmittedRun) -> None:
        try:
            submitted.look(future)
        except BaseException:
            logging.getLogger("concurrent.futures").exception("exception calling callback of a future")
        with self._lock:
            self._wanted = [pair for pair in self._wanted if pair[0] is not future]
