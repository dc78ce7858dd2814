"""A threadpool of Python threads: native kernels release the interpreter's lock, so its tasks run side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import TracebackType


class ThreadsPool:
    """Runs the tasks of one parallel region at a time on ``threads`` threads, the caller's being one of them.

    A task that raises does not stop its siblings; the first error is raised to the caller when the region has ended.
    """

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"a threadpool needs at least one thread, got {threads}")
        self._tasks: SimpleQueue[tuple[Callable[[int, int], None], int, int] | None] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"poolrt-{i}", daemon=True) for i in range(1, threads)
        ]
        for thread in self._threads:
            thread.start()

    def get_num_threads(self) -> int:
        """Return the number of threads that compute, the caller's included."""
        return len(self._threads) + 1

    def parallel_for(self, n: int, fn: Callable[[int, int], None]) -> None:
        """Run ``fn(i, n)`` for each i below n and return when all have ended."""
        for i in range(1, n):
            self._tasks.put((fn, i, n))
        failures: list[BaseException] = []
        try:
            fn(0, n)
        finally:  # the region ends before its error goes on: tasks must not outlive what they touch
            while self._take_one():
                pass
            failures.extend(error for _ in range(1, n) if (error := self._done.get()) is not None)
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Stop the threads."""
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def __enter__(self) -> ThreadsPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._run(*task)

    def _take_one(self) -> bool:
        """Run a task that no thread has taken yet; return whether there was one."""
        try:
            task = self._tasks.get_nowait()
        except Empty:
            return False
        if task is not None:
            self._run(*task)
        return True

    def _run(self, fn: Callable[[int, int], None], i: int, n: int) -> None:
        try:
            fn(i, n)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that owns the region
            self._done.put(error)
        else:
            self._done.put(None)
