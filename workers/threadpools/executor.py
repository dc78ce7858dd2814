"""A user's `concurrent.futures` executor as a threadpool."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future

from .interface import ThreadpoolInterface


class ExecutorPool(ThreadpoolInterface):
    """Runs tasks on ``executor``, up to ``threads`` of them at a time; synchronous. The executor stays its owner's.

    It must run callables in threads of this process: one of processes raises its own error. The calling thread runs the
    first task itself, and every one that the executor has not begun when it comes to it, so that an executor whose
    threads are all busy waiting, as in nested use, cannot deadlock.
    """

    def __init__(self, executor: Executor, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"a threadpool needs at least one thread, got {threads}")
        self._executor = executor
        self._num_threads = threads
        self._inside = threading.local()

    def get_num_threads(self) -> int:
        return self._num_threads

    def get_in_parallel(self) -> bool:
        return getattr(self._inside, "depth", 0) > 0

    def parallel_for(self, n: int, fn: Callable[[int, int], None]) -> None:
        if self.get_in_parallel():
            for i in range(n):
                fn(i, n)
            return
        futures = [self._executor.submit(self._run, fn, i, n) for i in range(1, n)]
        errors: list[BaseException | None] = []
        if n > 0:
            errors.append(self._caught(fn, 0, n))
        # The last one is the least likely to have begun.
        for i, future in reversed(list(enumerate(futures, start=1))):
            errors.append(self._caught(fn, i, n) if future.cancel() else _error_of(future))
        for error in errors:
            if error is not None:
                raise error

    def _caught(self, fn: Callable[[int, int], None], i: int, n: int) -> BaseException | None:
        try:
            self._run(fn, i, n)
        except BaseException as error:  # noqa: BLE001 - raised when the region has ended
            return error
        return None

    def _run(self, fn: Callable[[int, int], None], i: int, n: int) -> None:
        self._inside.depth = 1
        try:
            fn(i, n)
        finally:
            self._inside.depth = 0


def _error_of(future: Future[None]) -> BaseException | None:
    return future.exception()
