"""A threadpool of Python threads: native kernels release the interpreter's lock, so its tasks run side by side."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from .interface import ThreadpoolInterface


class ThreadsPool(ThreadpoolInterface):
    """Runs regions one after the other on ``threads`` threads; the caller's is one of them unless ``asynchronous``.

    A task that raises does not stop its siblings. From within a task, `parallel_for` runs its tasks in place; so it does
    on a synchronous pool whose threads are at work for another caller, so that nobody waits for another one's tasks.
    Raises RuntimeError when used after `close` or in a process forked from the pool's. An interrupt while a synchronous
    region is under way is raised when it has ended. The threads of a pool that nobody has any more end after its last
    region.
    """

    def __init__(self, threads: int, asynchronous: bool = False) -> None:
        if threads < 1:
            raise ValueError(f"a threadpool needs at least one thread, got {threads}")
        self._num_threads = threads
        self._asynchronous = asynchronous
        self._process = os.getpid()
        self._queue = _Queue(asynchronous)
        self._threads = [
            threading.Thread(target=self._queue.serve, name=f"poolrt-{i}", daemon=True)
            for i in range(threads if asynchronous else threads - 1)
        ]
        for thread in self._threads:
            thread.start()
        weakref.finalize(self, self._queue.stop).atexit = False

    def get_num_threads(self) -> int:
        return self._num_threads

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

    def close(self) -> None:
        """Wait for all regions and stop the threads; raise the first error that nobody has waited for.

        Nothing can be submitted any more. Without effect in a forked process.
        """
        if os.getpid() != self._process:
            return
        try:
            self.wait()
        finally:
            self._queue.stop()
            for thread in self._threads:
                thread.join()
            self._threads.clear()

    def __enter__(self) -> ThreadsPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _require_own(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("a threadpool cannot be used in a forked process: its threads are in the parent")


def _shut() -> threading.Lock:
    """Return a lock that somebody has."""
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class _Region:
    """A region under way: the next task to take, how many have not ended, and the first error.

    Of a synchronous one, ``own`` is the task that the caller has taken, which has ``begun`` or not, and the caller waits
    at ``gate`` until it is ``over``.
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
    gate: threading.Lock = field(default_factory=_shut)


class _Queue:
    """Regions in order, and the threads that take tasks of the first. It outlives its pool in a thread that still runs."""

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
        """Append a region; unless asynchronous, run tasks until it has ended, and raise the first error of one."""
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
                # Other threads work on what the region was given: it must not be freed before they have ended.
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
        """Run tasks until told to stop, and those that are there then."""
        while self._take(lambda: self._stopped and not self._regions):
            pass

    def stop(self) -> None:
        """Tell the threads to return when there is nothing to do."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _enter(self, region: _Region) -> None:
        """Append a region, unless it is synchronous and the threads are at work for another caller."""
        with self._lock:
            if self._stopped:
                raise RuntimeError("the threadpool is closed")
            if self._asynchronous or not self._regions:
                region.entered = True
                self._regions.append(region)
                self._changed.notify_all()

    def _run_whole(self, region: _Region) -> None:
        """Run tasks of a synchronous region until it is over; where an interrupt has ended this, take it up again.

        The interpreter raises an interrupt at calls and loops, and while a lock is waited for. What is written between two
        of these is there as a whole or not at all.
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
        """Run a task of the caller's region, first the one that an interrupt has left; return False where none is left."""
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
        """Run one task of the region whose turn it is, waiting for one; return False without one once it is enough."""
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
