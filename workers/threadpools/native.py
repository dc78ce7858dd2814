"""A threadpool whose loop is compiled code: between the tasks of a plan no thread enters the interpreter.

Threads take tasks from a queue in memory and sleep on a futex when there are none (`kernels/native/region_loop.py`).
Regions run in order. Python callables can be tasks too; each call of one takes the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

from ..kernels.native.object_loader import NativeKernel, load_object
from .interface import KERNEL_TYPE, Region, ThreadpoolInterface
from .regions import PackedRegions
from .sequential import SequentialPool

_LINE: Final = 64
#: Regions that the queue holds before whoever submits has to wait, a power of two.
_CAPACITY: Final = 1024
#: Regions that a thread submits at once to a synchronous pool.
_SHARE: Final = _CAPACITY // 4
#: How often a thread looks for the next region before it sleeps: some tens of microseconds.
_SPINS: Final = 1000
#: Words of the queue, each on a cache line of its own.
_ENDED, _SUBMITTED, _, _, _STOP, _RING, _RING_SIZE = range(7)


class NativePool(ThreadpoolInterface):
    """A pool of ``threads`` threads.

    Synchronous, the calling thread is one of them; ``asynchronous``, it only submits. Called from within a task,
    regions run in place, so nesting of any depth cannot deadlock. Many threads may submit. ``kernels`` are those of a
    region loop, realized; unless given, they come from the primitive cache of this process. Raises ValueError for less
    than one thread, what `PrimitiveCache.fetch` raises, and RuntimeError when used in a process forked from the pool's.
    """

    #: A region of two jobs takes 5 us more than calling them.
    least_job_ns: int = 10_000

    def __init__(self, threads: int, asynchronous: bool = False, kernels: Sequence[NativeKernel] | None = None) -> None:
        if threads < 1:
            raise ValueError(f"a threadpool needs at least one thread, got {threads}")
        self._num_threads = threads
        self._asynchronous = asynchronous
        self._process = os.getpid()
        loop, submit, *clock = _region_loop() if kernels is None else kernels
        self.clock = clock[0] if clock else None
        self._queue = _Queue(loop, submit)
        self._lock = threading.Lock()
        self._inside = threading.local()
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._queue.serve, name=f"poolrt-native-{i}", daemon=True)
            for i in range(threads if asynchronous else threads - 1)
        ]
        for thread in self._threads:
            thread.start()
        weakref.finalize(self, self._queue.stop).atexit = False

    def get_num_threads(self) -> int:
        return self._num_threads

    def get_in_parallel(self) -> bool:
        return getattr(self._inside, "depth", 0) > 0

    def get_flags(self) -> int:
        return self.AUTO_BALANCING | (self.ASYNCHRONOUS if self._asynchronous else 0)

    def parallel_for(self, n: int, fn: Callable[[int, int], None]) -> None:
        if self.get_in_parallel():
            SequentialPool().parallel_for(n, fn)
        elif n > 0:
            tasks = _PythonTasks(n, fn, self._inside)
            self._submit(PackedRegions([Region(tasks.function, tasks.blobs, keep=tasks)]))

    def run_regions(self, regions: Sequence[Region]) -> None:
        if self.get_in_parallel():
            SequentialPool().run_regions(regions)
        else:
            self._submit(regions if isinstance(regions, PackedRegions) else PackedRegions(regions))

    def wait(self) -> None:
        if self.get_in_parallel():
            return  # what was submitted from within a task has run in place
        self._wait_for(self._queue.submitted)
        with self._lock:
            self._release()
            error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Wait for all regions and stop the threads; raise the first error that nobody has waited for."""
        if os.getpid() != self._process or not self._threads:
            return
        try:
            self.wait()
        finally:
            self._queue.stop()
            for thread in self._threads:
                thread.join()
            self._threads.clear()

    def __enter__(self) -> NativePool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submit(self, regions: PackedRegions) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("a threadpool cannot be used in a forked process: its threads are in the parent")
        with self._lock:
            self._release()
            if self._asynchronous:
                self._queue.kept.append((self._queue.submitted + len(regions), regions))
                self._queue.submit(regions, 0, len(regions))
                return
        # Nobody else may be there to run what the queue has no room for.
        for begin in range(0, len(regions), _SHARE):
            with self._lock:
                count = min(_SHARE, len(regions) - begin)
                self._queue.submit(regions, begin, count)
                end = self._queue.submitted
            self._wait_for(end)
        error = regions.take_failure()
        if error is not None:
            raise error

    def _wait_for(self, end: int) -> None:
        while self._queue.ended < end:
            self._queue.run(end, helps=not self._asynchronous)

    def _release(self) -> None:
        """Let go of what belongs to regions that have ended, and keep the first error."""
        ended, kept = self._queue.ended, self._queue.kept
        while kept and kept[0][0] <= ended:
            error = kept.popleft()[1].take_failure()
            self._error = self._error or error


def _region_loop() -> list[NativeKernel]:
    """Return the kernels of the region loop, created where no one has them."""
    from ..desc import PrimitiveAttr
    from ..desc.operations.region_loop import RegionLoop
    from ..engines.target import cpu_target
    from ..primitives.cache import primitive_cache
    from ..primitives.primitive_desc import primitive_desc

    cached, _ = primitive_cache().fetch(primitive_desc(RegionLoop(), PrimitiveAttr(), cpu_target()))
    return [load_object(binary) for binary in cached.entry.binaries]


class _Queue:
    """The memory that threads share, and the compiled loop over it. It outlives the pool in a thread that still runs."""

    def __init__(self, loop: NativeKernel, submit: NativeKernel) -> None:
        self._kernels = (loop, submit)
        #: (number of regions submitted by then, what must live until they have ended), oldest first. Threads that run
        #: tasks keep it, also when nobody has the pool any more.
        self.kept: deque[tuple[int, PackedRegions]] = deque()
        size = _LINE * (_RING_SIZE + 1 + _CAPACITY)
        self._memory = (ctypes.c_char * (size + _LINE))()
        start = -(-ctypes.addressof(self._memory) // _LINE) * _LINE
        self._words = [ctypes.c_int64.from_address(start + _LINE * i) for i in range(_RING_SIZE + 1)]
        self._start = start
        self._words[_RING].value = start + _LINE * (_RING_SIZE + 1)
        self._words[_RING_SIZE].value = _CAPACITY

    @property
    def ended(self) -> int:
        """The number of regions that have ended."""
        return self._words[_ENDED].value

    @property
    def submitted(self) -> int:
        """The number of regions submitted."""
        return self._words[_SUBMITTED].value

    def submit(self, regions: PackedRegions, begin: int, count: int) -> None:
        """Append ``count`` regions from number ``begin`` on. One thread at a time."""
        self._call(1, self._start, regions.address_of(begin), count)

    def run(self, until: int, helps: bool) -> None:
        """Run tasks, or only wait, until so many regions have ended or a slice of time is over."""
        self._call(0, self._start, until, int(helps), _SPINS)

    def serve(self) -> None:
        """Run tasks until told to stop, and those that are there then."""
        self.run(-1, helps=True)
        while self.ended < self.submitted:
            self.run(self.submitted, helps=True)

    def stop(self) -> None:
        """Tell the threads to return when there is nothing to do."""
        self._words[_STOP].value = 1
        self._call(1, self._start, 0, 0)

    def _call(self, kernel: int, *arguments: int) -> None:
        room = (ctypes.c_int64 * 8)()
        start = ctypes.addressof(room)
        blob = (ctypes.c_int64 * (2 + len(arguments)))(0, 1, *arguments)
        if self._kernels[kernel].function(start, start + 32, ctypes.addressof(blob)):
            raise RuntimeError("the region loop failed")


class _PythonTasks:
    """A Python callable as the tasks of a region; `error` is the first exception of one."""

    def __init__(self, n: int, fn: Callable[[int, int], None], inside: threading.local) -> None:
        self._n = n
        self._fn = fn
        self._inside = inside
        self.error: BaseException | None = None
        self._callback = KERNEL_TYPE(self._run)
        self._numbers = (ctypes.c_int64 * n)(*range(n))
        start = ctypes.addressof(self._numbers)
        self.blobs = range(start, start + 8 * n, 8)
        self.function = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def _run(self, _: int, __: int, blob: int) -> int:
        self._inside.depth = getattr(self._inside, "depth", 0) + 1
        try:
            self._fn(ctypes.c_int64.from_address(blob).value, self._n)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the region
            self.error = self.error or error
            return 1
        finally:
            self._inside.depth -= 1
        return 0
