"""A synchronous native pool wakes threads for work that is worth it, and runs everything wherever its threads run."""

from __future__ import annotations

import ctypes
import os
import threading
import time

from poolrt.workers.kernels.native.region_queue import LINE, SLEEPERS
from poolrt.workers.threadpools.interface import Region
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.regions import PackedRegions

from .kinds import Loop

BOUND_S = 20.0
#: Submissions: a thread is awake for a moment now and then, and needs no wake-up in that.
TIMES = 6
#: Longer than a thread spins after a region, with what two submissions may be apart to count together.
PAUSE_S = 0.01
#: Nanoseconds that are shorter, and longer, than any machine takes to wake a thread.
SHORT, LONG = 1000, 1 << 40


def until_asleep(pool: NativePool) -> None:
    """Return when the pool's only thread sleeps, and the last submission was a while ago."""
    end = time.monotonic() + BOUND_S
    while pool._queue._words[SLEEPERS // LINE].value != 1:
        assert time.monotonic() < end, "the thread does not sleep"
        time.sleep(0.001)
    time.sleep(PAUSE_S)


def clocks(loop: Loop, nanoseconds: int) -> PackedRegions:
    """Return a region of two short tasks that are thought to take so long."""
    times = (ctypes.c_int64 * 4)()
    start = ctypes.addressof(times)
    blobs = [(ctypes.c_int64 * 3)(0, 1, start + 16 * i) for i in range(2)]
    addresses = [ctypes.addressof(blob) for blob in blobs]
    return PackedRegions([Region(loop[3].address, addresses, "two times", (times, blobs), nanoseconds)])


def test_no_thread_is_woken_for_short_work(loop: Loop) -> None:
    with NativePool(2, kernels=loop) as pool:
        for _ in range(5):
            until_asleep(pool)
            pool.run_regions(clocks(loop, SHORT))
        assert pool.wake_ups == 0


def test_a_thread_is_woken_for_long_work_until_it_proves_to_be_short(loop: Loop) -> None:
    with NativePool(2, kernels=loop) as pool:
        regions = clocks(loop, LONG)
        for _ in range(TIMES):
            until_asleep(pool)
            pool.run_regions(clocks(loop, LONG))
        woken = pool.wake_ups
        assert woken > 0
        for _ in range(TIMES):
            until_asleep(pool)
            pool.run_regions(regions)
        # On a busy machine, a task that is held up seems to take long.
        assert pool.wake_ups - woken < TIMES


def test_a_thread_is_woken_for_work_of_unknown_length(loop: Loop) -> None:
    with NativePool(2, kernels=loop) as pool:
        regions = clocks(loop, -1)
        for _ in range(TIMES):
            until_asleep(pool)
            pool.run_regions(regions)
        assert pool.wake_ups > 1


def test_a_thread_is_woken_for_short_submissions_that_follow_closely(loop: Loop) -> None:
    with NativePool(2, kernels=loop, spin_us=200_000) as pool:
        until_asleep(pool)
        for _ in range(20):
            pool.run_regions(clocks(loop, 20_000))
        assert pool.wake_ups > 0


def test_threads_on_one_processor_end_tasks_that_wait_for_one_another(loop: Loop) -> None:
    allowed = os.sched_getaffinity(0)
    try:
        with NativePool(2, kernels=loop) as pool:
            (thread,) = pool._threads
            assert thread.native_id is not None
            one = {min(allowed)}
            for given in ({thread.native_id: allowed, 0: one}, {thread.native_id: one, 0: one}):
                for number, processors in given.items():
                    os.sched_setaffinity(number, processors)
                for _ in range(20):
                    both = threading.Barrier(2, timeout=BOUND_S)
                    pool.parallel_for(2, lambda _i, _n, both=both: both.wait())  # type: ignore[misc]
                # Moving away from a processor does not narrow the set that a thread may run on.
                assert os.sched_getaffinity(thread.native_id) == given[thread.native_id]
    finally:
        os.sched_setaffinity(0, allowed)
