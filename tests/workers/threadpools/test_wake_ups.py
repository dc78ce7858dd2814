"""A synchronous native pool wakes threads for work that is worth it, and runs everything wherever its threads run."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any

import pytest

from poolrt.workers.engines.object_loader import load_object
from poolrt.workers.engines.target import host_isa
from poolrt.workers.kernels.native import region_loop
from poolrt.workers.kernels.native.compiler import types
from poolrt.workers.kernels.native.compiler.codegen import compile_function
from poolrt.workers.kernels.native.compiler.language import intrinsic
from poolrt.workers.kernels.native.region_queue import ARRIVAL, CALLER, LINE, RATE, SLEEPERS, SOONEST
from poolrt.workers.kernels.native.vec import I64, Builder, Value, pointer
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
#: Words of a queue behind that of the caller's processor.
ARRIVAL_WORD, SOONEST_WORD = ((word - CALLER) // 8 for word in (ARRIVAL, SOONEST))


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


def test_a_thread_spins_through_interrupts_and_sleeps_while_another_program_runs(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock of the loop, and how often the loop has read it.
    clock = (ctypes.c_int64 * 2)(1, 0)
    at = ctypes.addressof(clock)

    @intrinsic
    def read_ticks(_: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            b.atomic_rmw("add", pointer(b, I64(at + 8), I64), I64(1), "seq_cst")
            return b.load_atomic(pointer(b, I64(at), I64), "seq_cst", 8)

        return types.int64(), emit

    monkeypatch.setattr(region_loop, "read_ticks", read_ticks)
    timed = load_object(compile_function("loop", *region_loop.make(host_isa(), "loop"), host_isa()))
    with NativePool(2, kernels=[timed, *loop[1:]], spin_us=10**9) as pool:
        queue, words = pool._queue, pool._queue._words
        # A thread on the caller's processor would not spin: the caller is on none.
        queue._place[0] = 1 << 20
        queue._call(loop[1], queue._start, 0, 0)

        def has_slept(microseconds: int) -> bool:
            clock[0] += microseconds * words[RATE // LINE].value
            seen, end = clock[1], time.monotonic() + BOUND_S
            while clock[1] < seen + 1000 and words[SLEEPERS // LINE].value == 0:
                assert time.monotonic() < end, "the thread neither spins nor sleeps"
                time.sleep(0.001)
            return words[SLEEPERS // LINE].value == 1

        end = time.monotonic() + BOUND_S
        while words[SLEEPERS // LINE].value:
            assert time.monotonic() < end, "the thread does not wake up"
            time.sleep(0.001)
        assert [has_slept(gap) for gap in (0, 100, 400, 1000)] == [False, False, False, True]


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


def test_a_thread_that_was_late_once_is_woken_again_after_few_submissions(loop: Loop) -> None:
    with NativePool(2, kernels=loop) as pool:
        place = pool._queue._place
        place[ARRIVAL_WORD], place[SOONEST_WORD] = 1_000_000, 30_000
        for _ in range(24):
            until_asleep(pool)
            # It is worth a wake-up of 133 us.
            pool.run_regions(clocks(loop, 200_000))
        assert pool.wake_ups > 0


def test_a_wake_up_is_thought_to_take_no_less_than_the_least_of_late(loop: Loop) -> None:
    with NativePool(2, kernels=loop) as pool:
        place = pool._queue._place
        place[ARRIVAL_WORD] = place[SOONEST_WORD] = 30_000
        for _ in range(24):
            until_asleep(pool)
            pool.run_regions(clocks(loop, 30_000))
        assert pool.wake_ups == 0


def test_a_thread_that_sleeps_keeps_away_from_the_callers_processor_and_has_its_whole_set_when_it_works(
    loop: Loop,
) -> None:
    allowed = os.sched_getaffinity(0)
    one = {min(allowed)}
    try:
        with NativePool(2, kernels=loop) as pool:
            (thread,) = pool._threads
            number = thread.native_id
            assert number is not None
            os.sched_setaffinity(0, one)
            for _ in range(4):
                assert sets_in_tasks(pool)[number] == allowed
                until_asleep(pool)
                assert os.sched_getaffinity(number) == (allowed - one or allowed)
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_set_that_somebody_else_gives_a_thread_that_sleeps_stays(loop: Loop) -> None:
    allowed = os.sched_getaffinity(0)
    one = {min(allowed)}
    try:
        with NativePool(2, kernels=loop) as pool:
            (thread,) = pool._threads
            assert thread.native_id is not None
            os.sched_setaffinity(0, one)
            sets_in_tasks(pool)
            until_asleep(pool)
            os.sched_setaffinity(thread.native_id, one)
            for _ in range(4):
                assert sets_in_tasks(pool)[thread.native_id] == one
                until_asleep(pool)
                assert os.sched_getaffinity(thread.native_id) == one
    finally:
        os.sched_setaffinity(0, allowed)


def sets_in_tasks(pool: NativePool) -> dict[int, set[int]]:
    """Run a task on each of two threads; return the processors that each may run on, by the thread's number."""
    both, found = threading.Barrier(2, timeout=BOUND_S), {}

    def task(_i: int, _n: int) -> None:
        both.wait()
        found[threading.get_native_id()] = os.sched_getaffinity(0)

    pool.parallel_for(2, task)
    return found


def test_threads_on_one_processor_end_tasks_that_wait_for_one_another(loop: Loop) -> None:
    allowed = os.sched_getaffinity(0)
    try:
        with NativePool(2, kernels=loop) as pool:
            (thread,) = pool._threads
            assert thread.native_id is not None
            one = {min(allowed)}
            for given in ({thread.native_id: allowed, 0: one}, {thread.native_id: one, 0: one}):
                until_asleep(pool)  # a thread that changes its set itself at this moment puts back what it had before
                for number, processors in given.items():
                    os.sched_setaffinity(number, processors)
                for _ in range(20):
                    # Moving away from a processor does not narrow the set that a thread works on.
                    assert sets_in_tasks(pool)[thread.native_id] == given[thread.native_id]
    finally:
        os.sched_setaffinity(0, allowed)
