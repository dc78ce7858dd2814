"""A threadpool of Python threads: native kernels release the interpreter's lock, so its tasks run side by side."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from .own_threads import OwnThreads


class ThreadsPool(OwnThreads):
    """Runs regions one after the other on ``threads`` threads; the caller's is one of them unless ``asynchronous``.

    A task that raises does not stop the other tasks. From within a task, `parallel_for` runs its tasks in place; so it does
    on a synchronous pool whose threads run another caller's region, so that no caller waits for another one's tasks. Raises
    RuntimeError when used after `close`. An interrupt during a synchronous region is raised when the region has ended.
    """

    def __init__(self, threads: int, asynchronous: bool = False) -> None:
        super().__init__(threads, asynchronous)
        self._queue = _Queue(asynchronous)
        self._start(self._queue)

    def get_in_parallel(self) -> bool:
        return self._queue.inside

    def get_flags(self) -> int:
        return self.ASYNCHRONOUS if self._asynchronous else 0

    def parallel_for(self, n: int, fn: Callable[[int, int], None]) -> None:
        if self.get_in_parallel():
            for i in range(n):
                fn(i, n)
            return
        self._require_own()
        if n > 0:
            self._queue.submit(n, fn)

    def wait(self) -> None:
        if not self._asynchronous or self.get_in_parallel():
            return
        self._require_own()
        self._queue.wait()


def _locked() -> threading.Lock:
    """Return a lock that is locked."""
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class _Region:
    """A region under way: the next task to take, how many have not ended, and the first error.

    For a synchronous region, ``own`` is the task that the caller has taken and ``begun`` whether it has begun; the caller
    waits at ``gate`` until the region is ``over``.
    """

    n: int
    fn: Callable[[int, int], None]
    left: int
    next: int = 0
    error: BaseException | None = None
    entered: bool = False
    own: int | None = None
    begun: bool = False
    over: bool = False
    gate: threading.Lock = field(default_factory=_locked)


class _Queue:
    """Regions in order; threads take tasks of the first. A thread that still runs keeps the queue alive without its pool."""

    def __init__(self, asynchronous: bool) -> None:
        self._asynchronous = asynchronous
        self._regions: deque[_Region] = deque()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._inside = threading.local()
        self._stopped = False
        self._error: BaseException | None = None

    @property
    def inside(self) -> bool:
        """Whether the calling thread is running a task."""
        return getattr(self._inside, "depth", 0) > 0

    def submit(self, n: int, fn: Callable[[int, int], None]) -> None:
        """Append a region; unless asynchronous, run its tasks until it has ended, and raise their first error."""
        region = _Region(n, fn, n)
        if self._asynchronous:
            self._enter(region)
            return
        interrupt: BaseException | None = None
        while not region.over:
            try:
                self._run_whole(region)
            except BaseException as raised:
                if not region.entered:
                    raise
                # Other threads use the region's data, which must not be freed before they have ended.
                interrupt = raised
        if interrupt is not None:
            raise interrupt
        if region.error is not None:
            raise region.error

    def wait(self) -> None:
        """Return when all regions have ended; raise the first error since the last call."""
        with self._changed:
            self._changed.wait_for(lambda: not self._regions)
            error, self._error = self._error, None
        if error is not None:
            raise error

    def serve(self) -> None:
        """Run tasks until `stop`, and those that are queued then."""
        while self._take(lambda: self._stopped and not self._regions):
            pass

    def stop(self) -> None:
        """Let the threads return once the queue is empty."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _enter(self, region: _Region) -> None:
        """Append a region, unless it is synchronous and the threads run another caller's."""
        with self._lock:
            if self._stopped:
                raise RuntimeError("the threadpool is closed")
            if self._asynchronous or not self._regions:
                region.entered = True
                self._regions.append(region)
                self._changed.notify_all()

    def _run_whole(self, region: _Region) -> None:
        """Run tasks of a synchronous region until it is over; after an interrupt a second call continues.

        The interpreter raises an interrupt at calls, at loops and while it waits for a lock. Assignments between two of
        these happen all or not at all.
        """
        if not region.entered:
            self._enter(region)
        if not region.entered:
            for number in range(region.n):
                error = self._run(region, number)
                region.error = region.error or error
            region.over = True
            return
        while self._take_own(region):
            pass
        while not region.over:
            region.gate.acquire()

    def _take_own(self, region: _Region) -> bool:
        """Run a task of the caller's region, first the one that an interrupt has left; return False if none is left."""
        if region.own is None:
            with self._lock:
                if region.next == region.n:
                    return False
                region.begun = False
                region.own = region.next
                region.next += 1
        if not region.begun:
            self._inside.depth = 1
            try:
                region.begun = True
                region.fn(region.own, region.n)
            except BaseException as error:  # noqa: BLE001 - raised by `submit`
                region.error = region.error or error
        self._inside.depth = 0
        with self._lock:
            region.own = None
            region.left -= 1
            if region.left == 0:
                region.over = True
                self._regions.popleft()
                if self._stopped:
                    self._changed.notify_all()
        return True

    def _take(self, enough: Callable[[], bool]) -> bool:
        """Wait for a task of the first region and run it; return False, without one, as soon as ``enough()`` is true."""
        with self._changed:
            self._changed.wait_for(lambda: enough() or self._open())
            if enough():
                return False
            region = self._regions[0]
            number = region.next
            region.next += 1
        error = self._run(region, number)
        with self._changed:
            region.error = region.error or error
            region.left -= 1
            if region.left == 0:
                self._regions.popleft()
                if self._asynchronous:
                    self._error = self._error or region.error
                else:
                    region.over = True
                    region.gate.release()
                self._changed.notify_all()
        return True

    def _open(self) -> bool:
        return bool(self._regions) and self._regions[0].next < self._regions[0].n

    def _run(self, region: _Region, number: int) -> BaseException | None:
        self._inside.depth = 1
        try:
            region.fn(number, region.n)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the region
            return error
        finally:
            self._inside.depth = 0
        return None
