"""A user's `concurrent.futures` executor as a threadpool."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future

from .interface import ThreadpoolInterface


class ExecutorPool(ThreadpoolInterface):
    """Runs tasks on ``executor``, up to ``threads`` of them at a time; synchronous. The pool does not shut the executor down.

    The executor must run callables in threads of this process. The calling thread runs the first task, and every other
    one that the executor has not begun by then. So an executor whose threads all wait, for nested regions too, cannot
    deadlock. If the executor refuses a task, as after its shutdown, its error is raised when the accepted tasks have
    ended; so is an interrupt. Raises TypeError for another object or an executor of processes, and ValueError for less
    than one thread.
    """

    def __init__(self, executor: Executor, threads: int) -> None:
        if not isinstance(executor, Executor):
            raise TypeError(f"executor: expect a concurrent.futures.Executor, got {type(executor).__name__}")
        # Not imported here, which takes long: a caller that has an executor of processes has imported the module.
        processes = sys.modules.get("concurrent.futures.process")
        if processes is not None and isinstance(executor, processes.ProcessPoolExecutor):
            raise TypeError("executor: its processes cannot run tasks on memory of this one; expect one of threads")
        if threads < 1:
            raise ValueError(f"a threadpool needs at least one thread, got {threads}")
        self._executor = executor
        self._num_threads = threads
        self._inside = threading.local()

    def get_num_threads(self) -> int:
        return self._num_threads

    def get_in_parallel(self) -> bool:
        return getattr(self._inside, "depth", 0) > 0

    def get_flags(self) -> int:
        return self.NESTED

    def parallel_for(self, n: int, fn: Callable[[int, int], None]) -> None:
        futures: list[Future[None]] = []
        errors: list[BaseException | None] = []
        try:
            for i in range(1, n):
                futures.append(self._executor.submit(self._run, fn, i, n))
        except BaseException as error:  # noqa: BLE001 - raised when those that have begun have ended
            errors += [error, *[None if future.cancel() else _error_of(future) for future in futures]]
        else:
            errors += [self._caught(fn, i, n) for i in range(min(n, 1))]
            # The last one is the least likely to have begun.
            for i, future in reversed(list(enumerate(futures, start=1))):
                errors.append(self._caught(fn, i, n) if future.cancel() else _error_of(future))
        for raised in errors:
            if raised is not None:
                raise raised

    def _caught(self, fn: Callable[[int, int], None], i: int, n: int) -> BaseException | None:
        try:
            self._run(fn, i, n)
        except BaseException as error:  # noqa: BLE001 - raised when the region has ended
            return error
        return None

    def _run(self, fn: Callable[[int, int], None], i: int, n: int) -> None:
        self._inside.depth = getattr(self._inside, "depth", 0) + 1
        try:
            fn(i, n)
        finally:
            self._inside.depth -= 1


def _error_of(future: Future[None]) -> BaseException | None:
    """Wait for a task and return its error, or the interrupt that came meanwhile."""
    interrupt: BaseException | None = None
    while not future.done():
        try:
            future.exception()
        except BaseException as error:  # noqa: BLE001 - returned below
            interrupt = error
    if interrupt is not None or future.cancelled():
        return interrupt or CancelledError("the executor dropped a task that it had begun")
    return future.exception()
