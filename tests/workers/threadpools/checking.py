"""A threadpool that exposes errors: it starts late, in random order, and frees all of a region at its end."""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from poolrt.workers.memory.buffer import Buffer
from poolrt.workers.streams.stream import Stream, TakenScratchpad
from poolrt.workers.threadpools.interface import ThreadpoolInterface
from poolrt.workers.threadpools.nesting import WAIT_WITHIN

from .poison import POISON

Task = Callable[[int, int], None]
#: A region begins after fewer further ones than this, unless `CheckingPool.held` is changed.
_LATEST: Final = 4
#: Seconds that a thread may lose between two tasks.
_DELAY_S: Final = 2e-5


@dataclass(slots=True, eq=False)
class _Region:
    """A region: its untaken tasks, the number that have not ended, and the number of submissions it waits for."""

    n: int
    fn: Task | None
    order: list[int]
    left: int
    held: int


class CheckingPool(ThreadpoolInterface):
    """Runs regions one after the other on ``threads`` threads of its own, their tasks in random order.

    A region begins only after some more have been submitted, or when somebody waits. What it was given is let go of as
    soon as its last task has ended. What a task submits runs as if the task's region contained it.
    """

    def __init__(self, threads: int, seed: int = 0) -> None:
        #: Further regions that may have to be submitted before one begins.
        self.held = range(_LATEST)
        self._num_threads = threads
        self._chance = random.Random(seed)
        self._changed = threading.Condition()
        self._regions: deque[_Region] = deque()
        #: Regions that tasks of the first one have submitted.
        self._fresh = 0
        self._waiting = 0
        self._closed = False
        self._error: BaseException | None = None
        self._inside = threading.local()
        self._threads = [
            threading.Thread(target=self._serve, name=f"checking-{i}", daemon=True) for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def get_num_threads(self) -> int:
        return self._num_threads

    def get_in_parallel(self) -> bool:
        return getattr(self._inside, "depth", 0) > 0

    def get_flags(self) -> int:
        return self.ASYNCHRONOUS | self.NESTED

    def parallel_for(self, n: int, fn: Task) -> None:
        if n < 1:
            return
        with self._changed:
            for region in self._regions:
                region.held -= 1
            new = _Region(n, fn, self._chance.sample(range(n), n), n, self._chance.choice(self.held))
            if self.get_in_parallel():
                self._fresh += 1
                self._regions.insert(self._fresh, new)
            else:
                self._regions.append(new)
            self._changed.notify_all()

    def hold_back(self) -> None:
        """Hold every later region until a thread waits."""
        self.held = range(1 << 30, 1 << 31)

    def wait(self) -> None:
        if self.get_in_parallel():
            raise RuntimeError(WAIT_WITHIN)
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: not self._regions)
            finally:
                self._waiting -= 1
            error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Wait for all regions and stop the threads; raise the first error that no wait has raised."""
        try:
            self.wait()
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            for thread in self._threads:
                thread.join()

    def __enter__(self) -> CheckingPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        while self._take():
            pass

    def _take(self) -> bool:
        """Run one task of the first region, waiting for one; return False once the pool is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._open())
            if self._closed:
                return False
            region = self._regions[0]
            number = region.order.pop()
            lost = self._chance.choice((0.0, 0.0, 0.0, self._chance.random() * _DELAY_S))
        if lost:
            time.sleep(lost)
        error = self._run(region, number)
        with self._changed:
            self._error = self._error or error
            region.left -= 1
            if region.left:
                return True
        # Outside the lock: whatever this frees may use the pool.
        region.fn = None
        with self._changed:
            self._regions.popleft()
            self._fresh = 0
            self._changed.notify_all()
        return True

    def _open(self) -> bool:
        """Return whether the first region has tasks to take and may begin."""
        if not self._regions or not self._regions[0].order:
            return False
        return self._regions[0].held <= 0 or self._waiting > 0

    def _run(self, region: _Region, number: int) -> BaseException | None:
        assert region.fn is not None
        self._inside.depth = 1
        try:
            region.fn(number, region.n)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the region
            return error
        finally:
            self._inside.depth = 0
        return None


class CheckingStream(Stream):
    """A CPU stream whose scratch memory holds NaN when a primitive begins."""

    __slots__ = ()

    def scratchpad(self, nbytes: int) -> Buffer:
        scratchpad = super().scratchpad(nbytes)

        if not nbytes:
            return scratchpad

        def poison(_i: int, _n: int) -> None:
            ctypes.memset(scratchpad.address, POISON, scratchpad.nbytes)

        # In pool order: between the previous primitive and the asking one.
        self.pool.parallel_for(1, poison)
        return scratchpad

    def take_scratchpad(self, nbytes: int) -> TakenScratchpad:
        scratchpad = super().take_scratchpad(nbytes)
        ctypes.memset(scratchpad.address, POISON, scratchpad.nbytes)
        return scratchpad
