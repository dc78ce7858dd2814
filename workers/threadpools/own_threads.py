"""What threadpools with threads of their own share: these serve one queue, in the process that started them, until `close`."""

from __future__ import annotations

import os
import threading
import weakref
from functools import lru_cache
from types import TracebackType
from typing import Protocol, Self
from weakref import WeakSet

from .interface import ThreadpoolInterface
from .nesting import WAIT_WITHIN


class Queue(Protocol):
    """What the threads of a pool take their tasks from."""

    def serve(self) -> None:
        """Run tasks until `stop`, and those that are queued then."""
        ...

    def stop(self) -> None:
        """Let the threads return once the queue is empty."""
        ...


class OwnThreads(ThreadpoolInterface):
    """A pool of ``threads`` threads, the caller's among them unless ``asynchronous``.

    Raises ValueError for less than one thread, and RuntimeError when used in a process forked from the pool's. A pool that
    is dropped stops its threads after its last region.
    """

    def __init__(self, threads: int, asynchronous: bool) -> None:
        if threads < 1:
            raise ValueError(f"a threadpool needs at least one thread, got {threads}")
        self._num_threads = threads
        self._asynchronous = asynchronous
        #: Set in each process that is forked from the pool's: asking the system for the process takes 0.3 us a region.
        self._is_forked = False
        self._closed = False
        _pools().add(self)

    def leave_behind(self) -> None:
        """Refuse regions from now on: this is a forked process, which does not have the pool's threads."""
        self._is_forked = True
        self.runs_in_place = False

    def _start(self, queue: Queue) -> None:
        self._stop = queue.stop
        self._threads = [
            threading.Thread(target=queue.serve, name=f"poolrt-{type(self).__name__}-{i}", daemon=True)
            for i in range(self._num_threads if self._asynchronous else self._num_threads - 1)
        ]
        for thread in self._threads:
            thread.start()
        weakref.finalize(self, queue.stop).atexit = False

    def get_num_threads(self) -> int:
        return self._num_threads

    def close(self) -> None:
        """Wait for all regions and stop the threads; raise the first error that no `wait` has raised.

        Afterwards nothing can be submitted. Has no effect in a forked process.
        """
        if self._is_forked:
            return
        self._closed = True
        self.runs_in_place = False
        try:
            self.wait()
        finally:
            self._stop()
            for thread in self._threads:
                thread.join()
            self._threads.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _require_outside(self) -> None:
        if self.get_in_parallel():
            raise RuntimeError(WAIT_WITHIN)

    def _require_own(self) -> None:
        if self._is_forked:
            raise RuntimeError("a threadpool cannot be used in a forked process: its threads are in the parent")


@lru_cache(maxsize=1)
def _pools() -> WeakSet[OwnThreads]:
    """Return the pools of this process, which each forked process leaves behind."""
    found: WeakSet[OwnThreads] = WeakSet()
    os.register_at_fork(after_in_child=lambda: _leave_behind(found))
    return found


def _leave_behind(pools: WeakSet[OwnThreads]) -> None:
    for pool in list(pools):
        pool.leave_behind()
