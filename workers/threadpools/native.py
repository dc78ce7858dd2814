"""A threadpool whose loop is compiled code: between the tasks of a plan no thread enters the interpreter.

Threads take tasks from a queue in memory and sleep on a futex when there are none (`kernels/native/region_loop.py`).
Regions run in order. Python callables can be tasks too; each call of one takes the interpreter's lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from ..engines.object_loader import NativeKernel, load_object
from .interface import Region
from .native_queue import IN_PLACE, OF_RING, NativeQueue
from .own_threads import OwnThreads
from .python_tasks import python_region
from .regions import SHARE, PackedRegions

#: Microseconds that a thread of a synchronous pool spins for the next submission.
SPIN_US: Final = 100


class _Inside(threading.local):
    """How many tasks of the pool the thread is within, and the slot of the innermost one's region."""

    depth = 0
    slot = 0


class NativePool(OwnThreads):
    """A pool of ``threads`` threads that run native tasks without the interpreter.

    The calling thread is one of them unless ``asynchronous``. Any number of threads and tasks may submit, to any
    depth. An asynchronous pool runs all regions in one order, those of tasks as if the tasks' region contained
    them, and `wait` raises RuntimeError in a task. A synchronous one runs each thread's regions in that thread's
    order. It runs a task's on the task's thread and idle ones; while its threads run another caller's regions, a
    caller runs its own in place, so that it does not wait for tasks that take long or wait themselves. So it does with a
    few regions of one task each. ``kernels`` are those of a region loop, realized; by default they come from the
    primitive cache of this process. An interrupt during a synchronous region is raised when the region has ended.

    A synchronous pool wakes sleeping threads only for regions that take longer than waking, as far as their time is
    known. Its threads spin up to ``spin_us`` microseconds for the next submission before they sleep, but not while
    other programs need the processor; 0 lets them sleep at once. A thread that wakes on the caller's processor moves
    to another one of those that it may run on. Regions of known time that other threads lengthen run on the calling
    thread alone, and are tried with others now and then.

    Raises what `PrimitiveProvider.fetch` raises, ValueError for a negative ``spin_us``, and RuntimeError when used after
    `close`. What an asynchronous region keeps is released when it has ended: by the next thread that submits or waits,
    else by the pool a tenth of a second later.
    """

    IS_CONSTANT = True
    #: A region of two jobs takes 5 us more than calling them.
    least_job_ns: int = 10_000

    def __init__(
        self,
        threads: int,
        asynchronous: bool = False,
        kernels: Sequence[NativeKernel] | None = None,
        spin_us: int = SPIN_US,
    ) -> None:
        super().__init__(threads, asynchronous)
        if spin_us < 0:
            raise ValueError(f"spin_us: expect microseconds, at least 0, got {spin_us}")
        loop, submit, nest, clock = _region_loop() if kernels is None else kernels
        self.clock = clock
        self._queue = NativeQueue(loop, submit, nest, clock, asynchronous, spin_us)
        #: Held by the thread whose regions a synchronous pool's threads run.
        self._occupied = threading.Lock()
        self._inside = _Inside()
        self.runs_in_place = type(self) is NativePool and not asynchronous
        self._start(self._queue)

    def get_in_parallel(self) -> bool:
        return self._inside.depth > 0

    def get_flags(self) -> int:
        return self.NESTED | self.AUTO_BALANCING | (self.ASYNCHRONOUS if self._asynchronous else 0)

    @property
    def wake_ups(self) -> int:
        """How often sleeping threads of a synchronous pool were woken for a region."""
        return self._queue.wake_ups

    def parallel_for(self, n: int, fn: Callable[[int, int], None]) -> None:
        self._require_own()
        if n <= 0:
            return
        if self._asynchronous or not self.get_in_parallel():
            self._submit(PackedRegions([python_region(n, fn, self._inside)]))
            return
        with self._queue.slot() as slot:
            self._nest(PackedRegions([python_region(n, fn, self._inside, slot)]), slot)

    def run_regions(self, regions: Sequence[Region]) -> None:
        packed = regions if isinstance(regions, PackedRegions) else PackedRegions(regions)
        if self._asynchronous or self._inside.depth == 0:
            if not (self._asynchronous or self._closed or self._is_forked):
                if packed.is_serial:
                    packed.run_all()
                    return
                # In few calls: for a short region, they take as long as its tasks.
                if packed.size <= SHARE and self._occupied.acquire(blocking=False):
                    try:
                        self._run_share(packed, 0, packed.size)
                    finally:
                        self._occupied.release()
                    if packed.has_failed and (error := packed.take_failure()) is not None:
                        raise error
                    return
            self._require_own()
            self._submit(packed)
            return
        self._require_own()
        with self._queue.slot() as slot:
            self._nest(packed, slot)

    def wait(self) -> None:
        self._require_own()
        if not self._asynchronous:
            return  # submitting waited
        self._require_outside()
        self._queue.wait()
        error = self._queue.release()
        if error is not None:
            raise error

    def _nest(self, regions: PackedRegions, slot: int) -> None:
        """Run regions of a task, one after the other, in a slot of the queue; in place if that is 0."""
        parent = self._inside.slot or OF_RING
        for number in range(len(regions)):
            if slot:
                self._queue.nest(slot, regions, number, parent)
            else:
                regions.run(number)
        error = regions.take_failure()
        if error is not None:
            raise error

    def _submit(self, regions: PackedRegions) -> None:
        within = self.get_in_parallel()
        if self._closed and not within:  # closing waits for tasks
            raise RuntimeError("the threadpool is closed")
        if self._asynchronous:
            if within:
                self._queue.submit_within(regions)
            else:
                self._queue.submit_and_keep(regions)
            return
        begin = 0
        while begin < len(regions) and not self._occupied.acquire(blocking=False):
            self._inside.slot = IN_PLACE
            try:
                regions.run(begin)
            finally:
                self._inside.slot = 0
            begin += 1
        if begin < len(regions):
            try:
                self._run_on_threads(regions, begin)
            finally:
                self._occupied.release()
        error = regions.take_failure()
        if error is not None:
            raise error

    def _run_on_threads(self, regions: PackedRegions, begin: int) -> None:
        """Run regions from a number on; the calling thread has `_occupied`, and helps."""
        # In shares: no other thread may be free to run what the queue has no room for.
        for number in range(begin, len(regions), SHARE):
            self._run_share(regions, number, min(SHARE, len(regions) - number))

    def _run_share(self, regions: PackedRegions, begin: int, count: int) -> None:
        ended = False
        try:
            ended = self._queue.perform(regions, begin, count)
        finally:
            if not ended:
                # No other thread submits meanwhile.
                self._run_until(self._queue.submitted)

    def _run_until(self, end: int) -> None:
        """Run tasks until ``end`` regions have ended, despite interrupts: these must not free what other threads use."""
        interrupt: BaseException | None = None
        while True:
            try:
                while self._queue.ended < end:
                    self._queue.run(end, helps=1)
                break
            except BaseException as error:  # noqa: BLE001 - raised below
                interrupt = error
        if interrupt is not None:
            raise interrupt


def _region_loop() -> list[NativeKernel]:
    """Return the kernels of the region loop from the primitive cache."""
    from ..desc import PrimitiveAttr
    from ..desc.operations.region_loop import RegionLoop
    from ..engines.target import cpu_target
    from ..implementations.primitive_desc import primitive_desc
    from ..primitives.provider import primitive_provider

    cached, _ = primitive_provider().fetch(primitive_desc(RegionLoop(), PrimitiveAttr(), cpu_target()))
    return [load_object(binary) for binary in cached.entry.binaries]
