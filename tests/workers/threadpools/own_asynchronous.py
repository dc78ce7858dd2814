"""An asynchronous pool as a user may write it, over an executor of the standard library; it takes regions of tasks."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType

from poolrt.workers.threadpools.interface import ThreadpoolInterface

Task = Callable[[int, int], None]


@dataclass(slots=True, eq=False)
class _Region:
    n: int
    fn: Task
    left: int


class OwnAsynchronousPool(ThreadpoolInterface):
    """Runs one region after the other; what a task submits runs before regions that were submitted after the task's."""

    def __init__(self, threads: int) -> None:
        self._num_threads = threads
        self._cores = itertools.cycle(sorted(os.sched_getaffinity(0)))
        self._executor = ThreadPoolExecutor(threads, initializer=self._pin)
        self._regions: list[_Region] = []
        self._fresh = 0
        self._changed = threading.Condition()
        self._inside = threading.local()
        self._error: BaseException | None = None

    def get_num_threads(self) -> int:
        return self._num_threads

    def get_in_parallel(self) -> bool:
        return getattr(self._inside, "yes", False)

    def get_flags(self) -> int:
        return self.ASYNCHRONOUS | self.NESTED | self.AUTO_BALANCING  # threads take tasks from one queue

    def parallel_for(self, n: int, fn: Task) -> None:
        if n < 1:
            return
        with self._changed:
            inside = self.get_in_parallel()
            self._fresh += inside
            self._regions.insert(self._fresh if inside else len(self._regions), _Region(n, fn, n))
            if len(self._regions) == 1:
                self._begin()

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._regions)
            error, self._error = self._error, None
        if error is not None:
            raise error

    def __enter__(self) -> OwnAsynchronousPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()
        finally:
            self._executor.shutdown()

    def _pin(self) -> None:
        """Keep a thread on a core of its own: woken by another one, it would first share that one's."""
        os.sched_setaffinity(0, {next(self._cores)})

    def _begin(self) -> None:
        region = self._regions[0]
        for i in range(region.n):
            self._executor.submit(self._run, region, i)

    def _run(self, region: _Region, i: int) -> None:
        self._inside.yes = True
        try:
            region.fn(i, region.n)
        except BaseException as error:  # noqa: BLE001 - raised by `wait`
            self._error = self._error or error
        finally:
            self._inside.yes = False
        with self._changed:
            region.left -= 1
            if region.left:
                return
            del self._regions[0]
            self._fresh = 0
            self._changed.notify_all()
            if self._regions:
                self._begin()
