"""A threadpool whose loop is compiled code: between the tasks of a plan no thread enters the interpreter.

Threads take tasks from a queue in memory and sleep on a futex when there are none (`kernels/native/region_loop.py`).
Regions run in order. Python callables can be tasks too; each call of one takes the interpreter's lock.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

from ..engines.object_loader import NativeKernel, load_object
from .interface import Region, ThreadpoolInterface
from .native_queue import CAPACITY, NativeQueue
from .python_tasks import python_region
from .regions import PackedRegions
from .sequential import SequentialPool

#: Regions that a thread submits at once to a synchronous pool.
_SHARE: Final = CAPACITY // 4


class NativePool(ThreadpoolInterface):
    """A pool of ``threads`` threads.

    Synchronous, the calling thread is one of them; ``asynchronous``, it only submits. Called from within a task,
    regions run in place, so nesting of any depth cannot deadlock. Many threads may submit: to an asynchronous pool, in
    one order for all; to a synchronous one, each in its own, and while the threads are at work for another one they
    run in place too, so that nobody waits for tasks that take long or wait themselves. ``kernels`` are those of a
    region loop, realized; unless given, they come from the primitive cache of this process. Raises ValueError for less
    than one thread, what `PrimitiveCache.fetch` raises, and RuntimeError when used after `close` or in a process forked
    from the pool's. An interrupt while a synchronous region is under way is raised when it has ended.

    What an asynchronous region keeps is let go of when it has ended, by whoever submits or waits next, and otherwise by
    the pool itself a tenth of a second later.
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
        self._queue = NativeQueue(loop, submit)
        self._closed = False
        #: Held by the thread for which a synchronous pool's threads are at work.
        self._turn = threading.Lock()
        self._inside = threading.local()
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
            self._submit(PackedRegions([python_region(n, fn, self._inside)]))

    def run_regions(self, regions: Sequence[Region]) -> None:
        if self.get_in_parallel():
            SequentialPool().run_regions(regions)
        else:
            self._submit(regions if isinstance(regions, PackedRegions) else PackedRegions(regions))

    def wait(self) -> None:
        if self.get_in_parallel():
            return  # what was submitted from within a task has run in place
        self._require_own()
        if not self._asynchronous:
            return  # whoever submitted has waited
        end = self._queue.submitted
        while self._queue.ended < end:
            self._queue.run(end, helps=False)
        error = self._queue.release()
        if error is not None:
            raise error

    def close(self) -> None:
        """Wait for all regions and stop the threads; raise the first error that nobody has waited for.

        Nothing can be submitted any more. Without effect in a forked process, and when closed before.
        """
        if os.getpid() != self._process or self._closed:
            return
        self._closed = True
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
        self._require_own()
        if self._closed:
            raise RuntimeError("the threadpool is closed")
        if self._asynchronous:
            self._queue.submit_and_keep(regions)
            return
        begin = 0
        while begin < len(regions) and not self._turn.acquire(blocking=False):
            regions.run(begin)
            begin += 1
        if begin < len(regions):
            try:
                self._run_on_threads(regions, begin)
            finally:
                self._turn.release()
        error = regions.take_failure()
        if error is not None:
            raise error

    def _run_on_threads(self, regions: PackedRegions, begin: int) -> None:
        """Run regions from a number on; the calling thread has the turn, and helps."""
        # Nobody else may be there to run what the queue has no room for.
        for number in range(begin, len(regions), _SHARE):
            try:
                with self._queue.lock:
                    self._queue.submit(regions, number, min(_SHARE, len(regions) - number))
            finally:
                # Nobody else submits meanwhile.
                self._run_until(self._queue.submitted)

    def _run_until(self, end: int) -> None:
        """Run tasks until so many regions have ended: an interrupt must not free what other threads work on."""
        interrupt: BaseException | None = None
        while True:
            try:
                while self._queue.ended < end:
                    self._queue.run(end, helps=True)
                break
            except BaseException as error:  # noqa: BLE001 - raised below
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _require_own(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("a threadpool cannot be used in a forked process: its threads are in the parent")


def _region_loop() -> list[NativeKernel]:
    """Return the kernels of the region loop, created where no one has them."""
    from ..desc import PrimitiveAttr
    from ..desc.operations.region_loop import RegionLoop
    from ..engines.target import cpu_target
    from ..implementations.primitive_desc import primitive_desc
    from ..primitives.cache import primitive_cache

    cached, _ = primitive_cache().fetch(primitive_desc(RegionLoop(), PrimitiveAttr(), cpu_target()))
    return [load_object(binary) for binary in cached.entry.binaries]
