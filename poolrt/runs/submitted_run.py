"""The run of a future on a ring: the thread that waits for the future resolves it, and no other one is needed."""

from __future__ import annotations

import time
from _thread import allocate_lock
from functools import partial
from typing import TYPE_CHECKING, Any

from poolrt.cachestore.deferred_interrupts import deferred_interrupts
from poolrt.connection.futures import PoolFuture
from poolrt.connection.link import Link
from poolrt.errors import CoordinatorLoss, PoolError
from poolrt.workers.ipc.ring import EXECUTED

from .memory_wait import MemoryWait
from .model_run import ModelRun
from .placed_runs import PlacedRun
from .ring_entry import RingEntry
from .ring_run import leave_entry
from .run_pace import BATCH, RunPace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.model import Model

    from .loaded_model import LoadedModel
    from .prepared_places import PreparedPlaces


class FuturePace(RunPace):
    """The pace of the futures of one model. Its batches are as large as those of a map with as many runs in flight."""

    __slots__ = ()

    def __init__(self, batch: int = 0) -> None:
        super().__init__(batch or BATCH)

    def _next_batch(self, places: PreparedPlaces) -> int:
        self._in_flight = places.client.open_futures.driven
        return super()._next_batch(places)

    def submit(
        self, model: Model, loaded: LoadedModel, inputs: dict[str, Any], limit_s: float | None
    ) -> PoolFuture[dict[str, NDArray[Any]]] | None:
        """Begin a run in a prepared place and return its future; None if it is not begun. Raises PoolClosed."""
        open_futures = loaded.client.open_futures
        open_futures.check()
        run = PlacedRun()
        begun = False
        future: PoolFuture[dict[str, NDArray[Any]]] = PoolFuture()
        try:
            sequence = self.put(inputs, run, loaded)
            self.places = None  # of a ring that may be lost
            if sequence <= 0:
                return None
            run.sequence = sequence
            submitted = SubmittedRun(model, loaded, run, None)
            submitted.drives(future)
            if limit_s is not None:
                submitted.limit(future, limit_s)
            begun = True
        finally:
            if not begun:
                future.driver = future.withdraw = None
                run.abandon(loaded)
        open_futures.resolve_some()
        return future


def submit_on_ring(model: Model, run: ModelRun, link: Link, future: PoolFuture[Any], limit_s: float | None) -> bool:
    """Begin the run of a future on a ring and become its driver; return False if it has to be sent as a message."""
    entry = run.start_on_ring(link, MemoryWait())
    if entry is None:
        return False
    try:
        submitted = SubmittedRun(model, model._loaded, entry, run)
        submitted.drives(future)
        if limit_s is not None:
            submitted.limit(future, limit_s)
    except BaseException:
        future.driver = future.withdraw = None
        run.abandon()
        raise
    link.client.open_futures.resolve_some()
    return True


class SubmittedRun:
    """The driver of one future (`poolrt.connection.futures.Driver`). Safe for use by several threads."""

    __slots__ = ("_client", "_entry", "_limit_s", "_loaded", "_lock", "_model", "_outcomes", "_run", "_until")

    def __init__(self, model: Model, loaded: LoadedModel, entry: RingEntry | PlacedRun, run: ModelRun | None) -> None:
        """Take what was begun: an entry of ``run``, or one in a prepared place."""
        self._model = model
        self._loaded = loaded
        self._client = loaded.client
        self._run = run
        self._entry: RingEntry | PlacedRun | None = entry
        self._lock = allocate_lock()
        #: Result and error, until a thread has taken them to resolve the future.
        self._outcomes: list[tuple[Any, BaseException | None]] = []
        #: When its time is over, and how many seconds after it was begun.
        self._until: float | None = None
        self._limit_s = 0.0

    def drives(self, future: PoolFuture[Any]) -> None:
        """Become the driver of a future. Raises what `OpenFutures.check` raises."""
        future.withdraw = partial(self.withdraw, future)
        future.driver = self
        self._client.open_futures.add_driven(future)

    def limit(self, future: PoolFuture[Any], limit_s: float) -> None:
        """End the future after so many seconds: a thread that waits for it does, or that of `Deadlines`."""
        self._limit_s = limit_s
        self._until = time.monotonic() + limit_s
        self._model._session.deadlines.watch(future, limit_s, self.expire)

    @property
    def entry(self) -> RingEntry | PlacedRun | None:
        """What it waits for, None if nothing is left to wait for."""
        return self._entry

    @property
    def has_ended(self) -> bool:
        """Whether `look` resolves the future, or something else does."""
        entry = self._entry
        return entry is None or entry.ended

    def drive(self, future: PoolFuture[Any], deadline: float | None) -> None:
        """Return once the future is done, or will be without this driver, or at a time of `time.monotonic`."""
        entry, status = self._entry, 0
        if entry is not None:
            status = entry.status
            if not status:
                until = self._until
                try:
                    self._wait(
                        entry, deadline if until is None else until if deadline is None else min(deadline, until)
                    )
                except TimeoutError:
                    if until is not None and time.monotonic() >= until:
                        self.expire(future, self._limit_s)
                    return
                except PoolError as error:
                    self._lose(future, error)
        self._resolve(future, status)

    def _wait(self, entry: RingEntry | PlacedRun, deadline: float | None) -> None:
        """Wait for an entry; if it is in a prepared place, as its model's pace says."""
        pace, ring = self._loaded.pace, entry.ring
        if pace is not None and isinstance(entry, PlacedRun):
            pace.wait(entry, self._loaded, deadline)
        elif ring is not None:
            ring.wait(entry, self._client, deadline)

    def look(self, future: PoolFuture[Any]) -> None:
        """Resolve the future if its run has ended, and note if it has begun, without waiting."""
        entry, client = self._entry, self._client
        ring = None if entry is None else entry.ring
        if entry is not None and ring is not None:
            ring.look()
            if not entry.ended:
                if client.lost is not None:
                    self._lose(future, client.lost.copy())
                elif ring.has_begun(entry):
                    future.note_begun()
                    return
        self._resolve(future)

    def want(self, future: PoolFuture[Any]) -> None:
        """Let a thread of the ring resolve the future."""
        ring = None if self._entry is None else self._entry.ring
        if ring is not None:
            ring.watcher.watch(future, self, self._client)

    def withdraw(self, future: PoolFuture[Any]) -> bool:
        """Withdraw the run; return whether no worker has executed it or ever will."""
        with self._lock:
            entry = self._entry
            if isinstance(entry, PlacedRun):
                if not entry.withdraw():
                    return False
                self._entry = None
                entry.abandon(self._loaded)
            else:
                if entry is None or entry.ring is None or not entry.ring.withdraw(entry):
                    return False
                self._entry = None
                entry.ring.abandon(entry)
        self._client.open_futures.finish_driven(future)
        return True

    def expire(self, future: PoolFuture[Any], limit_s: float) -> None:
        """Resolve a future with a TimeoutError, because its time is over, unless its run has ended."""
        with self._lock:
            entry = self._entry
            if entry is not None and not entry.ended:
                if isinstance(entry, RingEntry):
                    leave_entry(self._loaded, entry, timed_out=True)
                else:
                    entry.leave(self._loaded, timed_out=True)
                self._outcomes.append((None, self._model._timed_out(limit_s)))
                self._entry = None
            run = self._run if self._entry is None and not self._outcomes else None
        if run is not None:
            run.expire(future, limit_s)
            return
        self._resolve(future)

    def _resolve(self, future: PoolFuture[Any], status: int = 0) -> None:
        """Resolve the future if its entry has ended, with a ``status`` if that is known; one of several threads does."""
        with self._lock:
            entry = self._entry
            if entry is not None and (status or entry.status):
                try:
                    if status == EXECUTED and type(entry) is PlacedRun:
                        entry.take(self._outcomes)  # as `_take`
                    else:
                        self._take(future, entry)
                except PoolError as error:
                    self._give_up(future, error)
                self._entry = None
        outcomes = self._outcomes
        try:
            result, failure = outcomes[0]
        except IndexError:
            return
        open_futures = self._client.open_futures
        try:
            try:
                outcomes.pop()
            except IndexError:
                return  # another thread has taken it, and resolves the future
            future.settle(result, failure)
            open_futures.finish_driven(future)
            future.driver = None  # after its callbacks, which the end of a pool waits for
        except BaseException:
            # An interrupt came after any step. No other thread has the outcome, so all are done again.
            future.settle(result, failure)
            open_futures.finish_driven(future)
            future.driver = None
            raise

    def _take(self, future: PoolFuture[Any], entry: RingEntry | PlacedRun) -> None:
        """Take the outputs, or send the run as a message: then the connection's thread resolves the future."""
        if isinstance(entry, PlacedRun):
            if entry.status == EXECUTED:
                entry.take(self._outcomes)
                return
            if self._run is None:
                self._run = ModelRun.resume(self._model, self._loaded, entry)
        run = self._run
        if run is None or run.entry is None:
            return
        if run.entry.status == EXECUTED:
            with deferred_interrupts():  # what is taken is the run's no more, and only the future may have it
                outputs = run.take_outputs(run.entry, future)
                if outputs is not None:
                    self._outcomes.append((outputs, None))
        else:
            run.take_outputs(run.entry, future)  # raises its error, or sends it

    def _lose(self, future: PoolFuture[Any], error: PoolError) -> None:
        """Handle the end of the connection."""
        with self._lock:
            if self._entry is not None:
                self._give_up(future, error)
                self._entry = None

    def _give_up(self, future: PoolFuture[Any], error: PoolError) -> None:
        """Resolve the future with an error, or begin its run again on another connection."""
        run, entry = self._run, self._entry
        if run is None and isinstance(entry, PlacedRun):
            run = self._run = ModelRun(self._model, entry.inputs())
            run.note_loaded(self._loaded)
            entry.release()
        if run is not None and isinstance(error, CoordinatorLoss) and run.may_repeat():
            try:
                run.begin_again(future)
                return
            except PoolError as failure:
                error = failure
        self._outcomes.append((None, error))
