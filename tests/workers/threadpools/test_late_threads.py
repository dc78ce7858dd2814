"""Threads of a synchronous native pool that are late, or have no processor, do not hold up the calling thread for long."""

from __future__ import annotations

import ctypes
import os
import threading
import time

import pytest

from poolrt.workers.engines.object_loader import NativeKernel, load_object
from poolrt.workers.engines.target import host_isa
from poolrt.workers.kernels.native.atomics import (
    atomic_add,
    atomic_load,
    atomic_store,
    pause,
    read_processor,
    stack_room,
)
from poolrt.workers.kernels.native.compiler import types
from poolrt.workers.kernels.native.compiler.codegen import compile_function
from poolrt.workers.kernels.native.region_queue import LINE, SLEEPERS, WAITING
from poolrt.workers.kernels.native.trial_words import NEXT, TRIALS
from poolrt.workers.threadpools.interface import Region
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.native_queue import NativeQueue
from poolrt.workers.threadpools.python_tasks import python_region
from poolrt.workers.threadpools.regions import SHARE, PackedRegions

from .kinds import Loop

BOUND_S = 20.0
#: Nanoseconds that a region is thought to take at first: worth a wake-up.
LONG = 1 << 40
#: Runs of one kind in a row that show that it is not by chance.
ROW = 8
#: Attempts, and pauses of a task that waits for the other one: some seconds.
TIMES = 5
MANY = 1 << 27


def test_the_caller_runs_what_no_thread_has_begun(loop: Loop) -> None:
    ran: list[int] = []
    queue = NativeQueue(*loop, asynchronous=False)
    regions = PackedRegions([python_region(8, lambda i, _: ran.append(i), threading.local()) for _ in range(3)])
    assert queue.perform(regions, 0, 3)
    assert ran == [*range(8)] * 3


class Tasks:
    """A region of two tasks whose time is known, which note the threads that run them."""

    def __init__(self) -> None:
        #: Seconds of a task on the thread that made this, and on another one.
        self.own_s = self.other_s = 0.0
        self.found: list[int] = []
        self._own = threading.get_ident()
        region = python_region(2, self._run, threading.local())
        self.regions = PackedRegions([region._replace(nanoseconds=LONG)])

    def _run(self, _i: int, _n: int) -> None:
        number = threading.get_ident()
        self.found.append(number)
        time.sleep(self.own_s if number == self._own else self.other_s)

    def run_until(self, pool: NativePool, threads: int) -> None:
        """Run until so many threads took part in each of several runs; fail after a while."""
        end, row = time.monotonic() + BOUND_S, 0
        while row < ROW:
            assert time.monotonic() < end, f"never {threads} threads"
            self.found.clear()
            pool.run_regions(self.regions)
            assert len(self.found) == 2
            row = row + 1 if len(set(self.found)) == threads else 0


def test_the_caller_leaves_threads_aside_while_they_take_longer_than_it_would(loop: Loop) -> None:
    with NativePool(2, kernels=loop) as pool:
        tasks = Tasks()
        # Two tasks of the caller take less than one of another thread that has no processor for a while.
        tasks.own_s, tasks.other_s = 0.0002, 0.005
        tasks.run_until(pool, 1)
        tasks.own_s = tasks.other_s = 0.002
        tasks.run_until(pool, 2)


def test_each_share_of_many_regions_has_a_record_of_trials_of_its_own() -> None:
    region = python_region(2, lambda _i, _n: None, threading.local())._replace(nanoseconds=LONG)
    regions = PackedRegions([region] * (2 * SHARE + 1))
    first = regions.trials_of(0)
    assert [regions.trials_of(SHARE * i) - first for i in range(3)] == [0, TRIALS, 2 * TRIALS]
    assert regions.trials_of(1) == 0


def test_runs_in_which_threads_sleep_are_not_taken_for_runs_with_them(loop: Loop) -> None:
    for _ in range(TIMES):
        with NativePool(2, kernels=loop, spin_us=0) as pool:
            region = python_region(2, lambda _i, _n: None, threading.local())._replace(nanoseconds=1)
            regions = PackedRegions([region])
            # The first run writes it.
            time_of_next_trial = ctypes.c_int64.from_address(regions.trials_of(0) + NEXT)
            end = time.monotonic() + BOUND_S
            while pool._queue._words[SLEEPERS // LINE].value != 1:
                assert time.monotonic() < end, "the thread does not sleep"
            for _ in range(20):
                pool.run_regions(regions)
            # A task that is held up by the machine is worth a thread.
            if not pool.wake_ups:
                assert time_of_next_trial.value == 0
                return
    pytest.fail("short regions wake threads")


def test_regions_of_one_task_each_are_run_by_the_caller(loop: Loop) -> None:
    with NativePool(2, kernels=loop) as pool:
        found: set[int] = set()
        region = python_region(1, lambda _i, _n: found.add(threading.get_ident()), threading.local())
        pool.run_regions(PackedRegions([region._replace(nanoseconds=LONG)] * 10))
        assert found == {threading.get_ident()}
        assert pool.wake_ups == 0


def test_tasks_of_unknown_time_are_never_left_to_the_caller_alone(loop: Loop) -> None:
    with NativePool(2, kernels=loop) as pool:
        both = threading.Barrier(2, timeout=BOUND_S)

        def task(_i: int, _n: int) -> None:
            both.wait()

        regions = PackedRegions([python_region(2, task, threading.local())])
        assert regions.trials_of(0) == 0
        for _ in range(50):
            pool.run_regions(regions)


def test_a_failed_task_of_a_run_of_the_caller_alone_is_raised_and_the_others_have_run(loop: Loop) -> None:
    ran: list[int] = []

    def task(i: int, _n: int) -> None:
        ran.append(i)
        if i == 0:
            raise ValueError("the first")

    with NativePool(2, kernels=loop) as pool:
        region = python_region(1, task, threading.local())._replace(nanoseconds=0)
        last = python_region(1, lambda _i, _n: ran.append(1), threading.local())._replace(nanoseconds=0)
        with pytest.raises(ValueError, match="the first"):
            pool.run_regions(PackedRegions([region, last, last, last, last]))
        assert ran == [0, 1, 1, 1, 1]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is no other processor to go to")
def test_a_thread_that_wakes_the_caller_leaves_its_processor(loop: Loop) -> None:
    allowed = os.sched_getaffinity(0)
    one = {min(allowed)}
    where = load_object(compile_function("where", note_place, types.void(*[types.int64] * 4), host_isa()))
    try:
        with NativePool(2, kernels=loop) as pool:
            os.sched_setaffinity(0, one)
            # The system may move a thread for reasons of its own.
            assert any(places_after_sleep(pool, where, one, allowed) > one for _ in range(TIMES))
    finally:
        os.sched_setaffinity(0, allowed)


def note_place(begin: int, end: int, place: int, arrived: int) -> None:
    """Write the number of the processor, and wait for the other of two tasks without sleeping; a kernel."""
    atomic_store(place, read_processor(stack_room()))
    atomic_add(arrived, 1)
    for _ in range(MANY):
        if atomic_load(arrived) == 2:
            return
        pause()


def places_after_sleep(pool: NativePool, where: NativeKernel, one: set[int], allowed: set[int]) -> set[int]:
    """Return where both threads are after one of them, on the processor ``one`` of the caller, has woken the caller."""
    waiting = pool._queue._words[WAITING // LINE]
    own, both = threading.get_ident(), threading.Barrier(2, timeout=BOUND_S)

    def keep_waiting(_i: int, _n: int) -> None:
        both.wait()
        if threading.get_ident() == own:
            return
        end = time.monotonic() + BOUND_S
        while not waiting.value:
            assert time.monotonic() < end, "the caller does not sleep"
        # As if the system had moved this thread there.
        os.sched_setaffinity(0, one)
        os.sched_setaffinity(0, allowed)

    found = (ctypes.c_int64 * 3)(-1, -1, 0)
    start = ctypes.addressof(found)
    blobs = [(ctypes.c_int64 * 4)(0, 1, start + 8 * i, start + 16) for i in range(2)]
    addresses = [ctypes.addressof(blob) for blob in blobs]
    first = python_region(2, keep_waiting, threading.local())
    pool.run_regions(PackedRegions([first, Region(where.address, addresses, "places", blobs)]))
    return set(found[:2])
