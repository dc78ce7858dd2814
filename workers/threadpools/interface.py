"""The interface of threadpools, after oneDNN's threadpool interface and its asynchronous extension.

A user's own pool is a subclass in plain Python: three methods, and two more if it is asynchronous.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..engines.raised import Raised, raised_at

if TYPE_CHECKING:
    from ..engines.object_loader import NativeKernel

#: Entry point of a native kernel: ``i32 (ret*, exc**, int64 blob[])``.
KERNEL_TYPE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class KernelFailed(RuntimeError):
    """A native kernel returned an error status. Raised in the thread that waits for the kernel.

    ``raised`` describes what a kernel of a user raised, and the exception itself is the cause; None for other failures.
    """

    raised: Raised | None = None


class Region(NamedTuple):
    """A parallel region of native tasks: a kernel's entry point and the address of each task's packed arguments.

    ``keep`` must live until the last task has run; its ``error``, if it has one, is what a task raised. Errors contain
    ``name``. ``nanoseconds`` is the estimated time of all tasks together on one thread, -1 if it is unknown.
    """

    function: int
    blobs: Sequence[int]
    name: str = ""
    keep: object = None
    nanoseconds: int = -1

    def failure(self, address: int = 0) -> BaseException:
        """Return the error to raise for a task that returned an error status and wrote an address (0, 1: none)."""
        error: BaseException | None = getattr(self.keep, "error", None)
        if error is not None:
            return error
        raised = raised_at(address) if address > 1 else None
        name = self.name or "a native kernel"
        failed = KernelFailed(f"{name} failed: {raised}" if raised else f"{name} failed")
        if raised is not None:
            failed.raised, failed.__cause__ = raised, raised.exception()
        return failed


class ThreadpoolInterface(ABC):
    """Runs parallel regions: ``n`` tasks ``fn(i, n)``, in any order, side by side or not.

    A pool with the flag `ASYNCHRONOUS` returns from `parallel_for` at once; its regions run in the order of their
    submission, each after the last task of the one before, and `wait` returns when all have ended. The pool keeps
    ``fn`` until its last task has run. Primitives never wait for a region and never use a barrier within one. Those that
    a task executes use the pool if it has the flag `NESTED`, and otherwise run on the task's thread alone.
    """

    #: `parallel_for` may return before its tasks have run; consecutive regions run in order.
    ASYNCHRONOUS: ClassVar[int] = 1
    #: Many small tasks are welcome: the pool balances them.
    AUTO_BALANCING: ClassVar[int] = 2
    #: Tasks may call `parallel_for`. An asynchronous pool appends such a region without waiting, also for room in a queue.
    #: A synchronous one returns when the region has ended, whatever other threads do: the calling thread runs its tasks.
    NESTED: ClassVar[int] = 4
    #: The number of threads and the flags never change. A class says so for itself only, not for its subclasses.
    IS_CONSTANT: ClassVar[bool] = False
    #: The pool is constant and synchronous, and callers outside of its tasks may themselves run what it would run on their
    #: threads: a few regions of one task each. Not true of a pool that refuses regions.
    runs_in_place: bool = False
    #: Kernel that writes the monotonic time (int64 seconds, nanoseconds) to an address; None: time is taken in Python.
    clock: NativeKernel | None = None
    #: The shortest job, in nanoseconds, that is worth a thread of its own; shorter work is cut into fewer jobs.
    least_job_ns: int = 50_000

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.IS_CONSTANT = "IS_CONSTANT" in vars(cls) and cls.IS_CONSTANT

    @abstractmethod
    def get_num_threads(self) -> int:
        """Return how many tasks can run at the same time."""

    @abstractmethod
    def get_in_parallel(self) -> bool:
        """Return whether the calling thread is running a task of this pool."""

    @abstractmethod
    def parallel_for(self, n: int, fn: Callable[[int, int], None]) -> None:
        """Run ``fn(i, n)`` for each i below n. Tasks call it too: a pool without the flag `NESTED` may run those in place.

        A synchronous pool returns when all have ended, and raises the first error of one.
        """

    def get_flags(self) -> int:
        """Return the sum of the flags that hold."""
        return 0

    def wait(self) -> None:  # noqa: B027 - a synchronous pool has nothing to wait for
        """Return when every region submitted so far, and by their tasks, has ended; raise the first error.

        A synchronous pool has nothing to do. An asynchronous one with the flag `NESTED` raises RuntimeError in its tasks.
        """

    def run_regions(self, regions: Sequence[Region]) -> None:
        """Run regions of native tasks, one after the other, as `parallel_for` does; raise KernelFailed as it raises errors."""
        for region in regions:
            self.parallel_for(len(region.blobs), _NativeTasks(region))


class _NativeTasks:
    """Calls the native kernel of a region as a pool's task."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._kernel = KERNEL_TYPE(region.function)

    def __call__(self, i: int, n: int) -> None:
        room = (ctypes.c_int64 * 8)()
        start = ctypes.addressof(room)
        if self._kernel(start, start + 32, self._region.blobs[i]):
            raise self._region.failure(room[4])
