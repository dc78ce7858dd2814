"""A typical pool of a user: it takes regions of tasks, and a thread that waits helps with any task."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from poolrt.workers.threadpools.interface import ThreadpoolInterface

Task = Callable[[int, int], None]


@dataclass(slots=True, eq=False)
class _Region:
    """Tasks that have not ended, and the first error of one."""

    left: int
    error: BaseException | None = None


class HelpingPool(ThreadpoolInterface):
    """Runs the tasks of all regions in one queue on ``threads`` threads, the submitting thread included; synchronous.

    Whoever waits for a region, a task too, runs tasks of any region meanwhile.
    """

    def __init__(self, threads: int) -> None:
        self._num_threads = threads
        self._tasks: deque[tuple[_Region, int, int, Task]] = deque()
        self._changed = threading.Condition()
        self._inside = threading.local()
        self._closed = False
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(threads - 1)]
        for thread in self._threads:
            thread.start()

    def get_num_threads(self) -> int:
        return self._num_threads

    def get_in_parallel(self) -> bool:
        return getattr(self._inside, "depth", 0) > 0

    def get_flags(self) -> int:
        return self.NESTED

    def parallel_for(self, n: int, fn: Task) -> None:
        region = _Region(n)
        with self._changed:
            self._tasks.extend((region, i, n, fn) for i in range(n))
            self._changed.notify_all()
        while self._run_one(lambda: not region.left):
            pass
        if region.error is not None:
            raise region.error

    def __enter__(self) -> HelpingPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while self._run_one(lambda: self._closed):
            pass

    def _run_one(self, enough: Callable[[], bool]) -> bool:
        """Wait for a task and run it; return False once no more are needed."""
        with self._changed:
            self._changed.wait_for(lambda: enough() or self._tasks)
            if enough():
                return False
            region, i, n, fn = self._tasks.popleft()
        self._inside.depth = getattr(self._inside, "depth", 0) + 1
        try:
            fn(i, n)
        except BaseException as error:  # noqa: BLE001 - raised when the region has ended
            region.error = region.error or error
        finally:
            self._inside.depth -= 1
        with self._changed:
            region.left -= 1
            self._changed.notify_all()
        return True
