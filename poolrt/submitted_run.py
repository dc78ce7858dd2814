"""The run of a future on a ring: the thread that waits for the future resolves it, and no other one is needed."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from poolrt.errors import CoordinatorLoss, PoolError

from .link import Link
from .model_run import ModelRun

if TYPE_CHECKING:
    from .futures import PoolFuture
    from .ring_entry import RingEntry


def submit_on_ring(run: ModelRun, link: Link, future: PoolFuture[Any]) -> bool:
    """Begin the run of a future on a ring and become its driver; return False if it has to be sent as a message."""
    entry = run.start_on_ring(link)
    if entry is None:
        return False
    submitted = SubmittedRun(run, entry)
    try:
        future.withdraw = partial(submitted.withdraw, future)
        future.driver = submitted
        link.client.open_futures.add_driven(future)
    except BaseException:
        future.driver = future.withdraw = None
        run.abandon()
        raise
    link.client.open_futures.resolve_some()
    return True


class SubmittedRun:
    """The driver of one future (`poolrt.futures.Driver`). Safe for use by several threads."""

    __slots__ = ("_entry", "_lock", "_outcomes", "_run")

    def __init__(self, run: ModelRun, entry: RingEntry) -> None:
        self._run = run
        self._entry: RingEntry | None = entry
        self._lock = threading.Lock()
        #: Result and error, until a thread has taken them to resolve the future.
        self._outcomes: deque[tuple[Any, BaseException | None]] = deque()

    @property
    def has_ended(self) -> bool:
        """Whether `look` resolves the future, or something else does."""
        entry = self._entry
        return entry is None or entry.ended

    def drive(self, future: PoolFuture[Any], deadline: float | None) -> None:
        """Return once the future is done, or will be without this driver, or at a time of `time.monotonic`."""
        entry = self._entry
        if entry is not None and entry.ring is not None:
            try:
                entry.ring.wait(entry, self._run.client, deadline)
            except TimeoutError:
                return
            except PoolError as error:
                self._lose(future, error)
        self._resolve(future)

    def look(self, future: PoolFuture[Any]) -> None:
        """Resolve the future if its run has ended, and note if it has begun, without waiting."""
        entry, client = self._entry, self._run.client
        if entry is not None and entry.ring is not None:
            entry.ring.look()
            if not entry.ended:
                if client.lost is not None:
                    self._lose(future, client.lost.copy())
                elif entry.ring.has_begun(entry):
                    future.note_begun()
                    return
        self._resolve(future)

    def want(self, future: PoolFuture[Any]) -> None:
        """Let a thread of the ring resolve the future."""
        entry = self._entry
        if entry is not None and entry.ring is not None:
            entry.ring.watcher.watch(future, self, self._run.client)

    def withdraw(self, future: PoolFuture[Any]) -> bool:
        """Withdraw the run; return whether no worker has executed it or ever will."""
        with self._lock:
            entry = self._entry
            if entry is None or entry.ring is None or not entry.ring.withdraw(entry):
                return False
            self._entry = None
            entry.ring.abandon(entry)
        self._run.client.open_futures.finish_driven(future)
        return True

    def _resolve(self, future: PoolFuture[Any]) -> None:
        """Resolve the future if its entry has ended; one of several threads does."""
        with self._lock:
            entry = self._entry
            if entry is not None and entry.ended:
                try:
                    self._take(future, entry)
                except PoolError as error:
                    self._give_up(future, error)
                self._entry = None
        try:
            result, failure = self._outcomes.pop()
        except IndexError:
            return
        try:
            future.settle(result, failure)
        except BaseException:
            future.settle(result, failure)  # an interrupt has ended it
            raise
        finally:
            self._run.client.open_futures.finish_driven(future)

    def _take(self, future: PoolFuture[Any], entry: RingEntry) -> None:
        """Take the outputs, or send the run as a message: then the connection's thread resolves the future."""
        outputs = self._run.take_outputs(entry, future)
        if outputs is not None:
            self._outcomes.append((outputs, None))

    def _lose(self, future: PoolFuture[Any], error: PoolError) -> None:
        """Handle the end of the connection."""
        with self._lock:
            if self._entry is not None:
                self._give_up(future, error)
                self._entry = None

    def _give_up(self, future: PoolFuture[Any], error: PoolError) -> None:
        """Resolve the future with an error, or begin its run again on another connection."""
        if isinstance(error, CoordinatorLoss) and self._run.may_repeat():
            try:
                self._run.begin_again(future)
                return
            except PoolError as failure:
                error = failure
        self._outcomes.append((None, error))
