"""A threadpool of Python threads: native kernels release the interpreter's lock, so its tasks run side by side."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.cachestore.forked_locks import freed_in_children

from .own_threads import OwnThreads


class ThreadsPool(OwnThreads):
    """Runs regions one after the other on ``threads`` threads; the caller's is one of them unless ``asynchronous``.

    A task that raises does not stop the other tasks. Tasks may submit to any depth. An asynchronous pool runs their
    regions as if the tasks' region contained them, and `wait` raises RuntimeError in a task; a synchronous one runs
    them on the task's thread and idle ones. A synchronous pool whose threads run another caller's region runs a
    region in place, so that no caller waits for another one's tasks. Raises RuntimeError when used after `close`.
    An interrupt during a synchronous region is raised when the region has ended.
    """

    def __init__(self, threads: int, asynchronous: bool = False) -> None:
        super().__init__(threads, asynchronous)
        self._queue = _Queue(asynchronous)
        self._start(self._queue)

    def get_in_parallel(self) -> bool:
        return self._queue.inside is not None

    def get_flags(self) -> int:
        return self.NESTED | (self.ASYNCHRONOUS if self._asynchronous else 0)

    def parallel_for(self, n: int, fn: Callable[[int, int], None]) -> None:
        self._require_own()
        if n > 0:
            self._queue.submit(n, fn)

    def wait(self) -> None:
        if not self._asynchronous:
            return
        self._require_own()
        self._require_outside()
        self._queue.wait()


#: Seconds after which a thread that waits for a region looks again, in case an interrupt came before it was told.
_LOOK_S: Final = 0.1


def _locked() -> threading.Lock:
    """Return a lock that is locked."""
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class _Region:
    """A region under way: the next task to take, how many have not ended, and the first error.

    ``parent`` is the region in whose task it was submitted. For a synchronous region, ``held`` and ``own`` are the task that
    the caller has taken, of this region or one nested in it, and ``begun`` says whether it has begun; the caller waits at
    ``gate`` until the region is ``over`` or a nested one has tasks.
    """

    n: int
    fn: Callable[[int, int], None]
    left: int
    parent: _Region | None
    next: int = 0
    error: BaseException | None = None
    entered: bool = False
    held: _Region | None = None
    own: int = 0
    begun: bool = False
    over: bool = False
    gate: threading.Lock = field(default_factory=_locked)

    def is_nested_in(self, other: _Region) -> bool:
        """Return whether this region is another one, or was submitted in a task of it, at any depth."""
        region: _Region | None = self
        while region is not None and region is not other:
            region = region.parent
        return region is not None


class _Queue:
    """Regions in order; threads take tasks of the first, then of nested ones.

    A thread that still runs keeps the queue alive without its pool.
    """

    def __init__(self, asynchronous: bool) -> None:
        self._asynchronous = asynchronous
        self._regions: deque[_Region] = deque()
        #: How many regions tasks of the first one have submitted to an asynchronous pool.
        self._fresh = 0
        #: Synchronous regions that tasks have submitted, the latest last.
        self._nested: list[_Region] = []
        # A forked process drops pools of its parent, too.
        self._lock = freed_in_children(threading.RLock())
        self._changed = threading.Condition(self._lock)
        self._inside = threading.local()
        self._stopped = False
        self._error: BaseException | None = None

    @property
    def inside(self) -> _Region | None:
        """The region of the task that the calling thread is running."""
        return getattr(self._inside, "region", None)

    def submit(self, n: int, fn: Callable[[int, int], None]) -> None:
        """Append a region; unless asynchronous, run its tasks until it has ended, and raise their first error."""
        # An asynchronous region may outlive the one around it, and must not keep it.
        region = _Region(n, fn, n, None if self._asynchronous else self.inside)
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
            if self._stopped and self.inside is None:
                raise RuntimeError("the threadpool is closed")
            if region.parent is not None:
                region.entered = True
                self._nested.append(region)
                above: _Region | None = region.parent
                while above is not None:
                    _open(above.gate)
                    above = above.parent
            elif self._asynchronous and self.inside is not None:
                # Before those that were submitted after the task's region, as if that contained it.
                self._fresh += 1
                self._regions.insert(self._fresh, region)
            elif self._asynchronous or not self._regions:
                region.entered = True
                self._regions.append(region)
            else:
                return
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
        while region.left or region.held is not None:
            if not self._take_own(region):
                region.gate.acquire(timeout=_LOOK_S)
        with self._lock:
            if region in self._nested:
                self._nested.remove(region)
            if self._regions and self._regions[0] is region:
                self._regions.popleft()
            if self._stopped:
                self._changed.notify_all()
            region.over = True

    def _take_own(self, region: _Region) -> bool:
        """Run a task of the caller's region, or of one nested in it, first the one that an interrupt has left.

        Returns False if there is none.
        """
        if region.held is None:
            with self._lock:
                taken = self._find(region)
                if taken is None:
                    return False
                region.begun = False
                region.own = taken.next
                taken.next += 1
                region.held = taken
        taken = region.held
        if not region.begun:
            self._inside.region = taken
            try:
                region.begun = True
                taken.fn(region.own, taken.n)
            except BaseException as error:  # noqa: BLE001 - raised by `submit`
                taken.error = taken.error or error
        self._inside.region = region.parent
        with self._lock:
            region.held = None
            taken.left -= 1
            if taken.left == 0:
                _open(taken.gate)
        return True

    def _find(self, waiting: _Region | None) -> _Region | None:
        """Return a region with a task to take: for a caller that waits, its own or one nested in it; else the first one."""
        first = self._regions[0] if self._regions and waiting is None else waiting
        if first is not None and first.next < first.n:
            return first
        for region in reversed(self._nested):
            if region.next < region.n and (waiting is None or region.is_nested_in(waiting)):
                return region
        return None

    def _take(self, enough: Callable[[], bool]) -> bool:
        """Wait for a task and run it; return False, without one, as soon as ``enough()`` is true."""
        with self._changed:
            self._changed.wait_for(lambda: enough() or self._find(None))
            region = None if enough() else self._find(None)
            if region is None:
                return False
            number = region.next
            region.next += 1
        error = self._run(region, number)
        with self._changed:
            region.error = region.error or error
            region.left -= 1
            if region.left == 0 and self._asynchronous:
                self._regions.popleft()
                self._fresh = 0
                self._error = self._error or region.error
                self._changed.notify_all()
            elif region.left == 0:
                _open(region.gate)
        return True

    def _run(self, region: _Region, number: int) -> BaseException | None:
        before = self.inside
        self._inside.region = region
        try:
            region.fn(number, region.n)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the region
            return error
        finally:
            self._inside.region = before
        return None


def _open(gate: threading.Lock) -> None:
    """Let the thread pass that waits at a gate, or comes to it next; the caller holds the queue's lock."""
    if gate.locked():
        gate.release()
