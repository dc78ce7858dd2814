"""A pool with the private attributes of ProcessPoolExecutor that CPython's tests look at, and locks for its workers.

CPython's tests share locks and queues with children by inheritance. Workers of poolrt are no children of the tests: these
ones travel as the names of files.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import poolrt
from poolrt.errors import PoolClosed

from .processes import BOUND_S, is_alive, wait_until


class PoolExecutor(poolrt.Pool):
    """A pool of workers with one thread. ``mp_context`` has no meaning for it."""

    def __init__(self, max_workers: int | None = None, mp_context: object = None, **arguments: Any) -> None:
        super().__init__(max_workers=max_workers, threads=1, **arguments)
        self._mp_context = mp_context
        # Tests cancel calls of 0.1 s after their submission, which the start of workers must not take.
        wait_until(self._has_started, "all workers have started")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what has not begun. The first calls of a ProcessPoolExecutor have begun by then, so wait for these."""
        if cancel_futures:
            self._processes  # noqa: B018 - waits
        super().shutdown(wait, cancel_futures=cancel_futures)

    def _has_started(self) -> bool:
        return all(worker["state"] != "starting" for worker in self.stats()["workers"])

    @property
    def _processes(self) -> dict[int, _Process]:
        """The workers that have executed a function: ProcessPoolExecutor starts others later."""
        found: list[dict[str, Any]] = []

        def settled() -> bool:
            stats = self.stats()
            found[:] = stats["workers"]
            states = {worker["state"] for worker in found}
            return "starting" not in states and (not stats["queue"]["waiting"] or states == {"busy"})

        wait_until(settled, "all workers have started, and all functions have begun as far as there are workers")
        return {w["pid"]: _Process(w["pid"]) for w in found if w["runs"] or w["state"] == "busy"}

    @property
    def _executor_manager_thread(self) -> threading.Thread | None:
        return self._session.client.open_futures.thread

    @property
    def _call_queue(self) -> _NoQueue:
        return _NoQueue()

    @property
    def _broken(self) -> bool:
        try:
            return self._functions(self._session.link).broken is not None
        except PoolClosed:
            return True


class _NoQueue:
    def join_thread(self) -> None:
        pass


class _Process:
    """A worker as `multiprocessing.Process` shows one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def join(self) -> None:
        wait_until(lambda: not is_alive(self.pid), f"worker {self.pid} has exited", BOUND_S)


class Context:
    """What the tests use of a context of `multiprocessing`, in files of a temporary folder."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        #: A pipe that no process has open loses what is in it.
        self._kept: list[Semaphore] = []

    def close(self) -> None:
        """Remove the files. Until then, the pipes are kept open."""
        self.folder.cleanup()
        self._kept.clear()

    def get_start_method(self, allow_none: bool = False) -> str:
        return "forkserver"

    def Semaphore(self, count: int) -> Semaphore:
        assert count == 0
        self._kept.append(Semaphore(tempfile.mktemp(dir=self.folder.name)))
        return self._kept[-1]

    def Queue(self) -> Queue:
        return Queue(tempfile.mkdtemp(dir=self.folder.name))

    def Manager(self) -> Context:
        return self

    def Event(self) -> Event:
        return Event(tempfile.mktemp(dir=self.folder.name))

    def shutdown(self) -> None:
        pass

    def join(self) -> None:
        pass


class Semaphore:
    """A named pipe: each byte in it is one release."""

    def __init__(self, path: str) -> None:
        self._path = path
        os.mkfifo(path)
        self._kept = os.open(path, os.O_RDWR)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self._path,)

    def __del__(self) -> None:
        os.close(self._kept)

    def acquire(self) -> bool:
        return len(os.read(self._kept, 1)) == 1

    def release(self) -> None:
        os.write(self._kept, b"x")


def _opened(path: str) -> Semaphore:
    found = Semaphore.__new__(Semaphore)
    found._path = path
    found._kept = os.open(path, os.O_RDWR)
    return found


class Event:
    """A file that is there once the event is set."""

    def __init__(self, path: str) -> None:
        self._path = path

    def set(self) -> None:
        try:
            Path(self._path).touch()
        except FileNotFoundError:
            pass  # the test has ended

    def wait(self, timeout: float) -> bool:
        until = time.monotonic() + timeout
        while not os.path.exists(self._path) and time.monotonic() < until:
            time.sleep(0.005)
        return os.path.exists(self._path)


class Queue:
    """A folder with a pickle for each item."""

    def __init__(self, path: str) -> None:
        self._path = path

    def put_nowait(self, item: object) -> None:
        place = Path(self._path, f"{time.monotonic_ns()}.{os.getpid()}")
        place.with_suffix(".new").write_bytes(pickle.dumps(item))
        place.with_suffix(".new").rename(place)

    def get_nowait(self) -> Any:
        found = sorted(place for place in Path(self._path).iterdir() if place.suffix != ".new")
        if not found:
            raise queue.Empty
        data = found[0].read_bytes()
        found[0].unlink()
        return pickle.loads(data)  # noqa: S301 - of this test
