"""A region has ended when no thread uses it any more: whoever waits for it may drop it then, and its memory."""

from __future__ import annotations

import ctypes
import threading
import time

import pytest

from poolrt.workers.engines.object_loader import load_object
from poolrt.workers.engines.target import host_isa
from poolrt.workers.kernels.native import region_loop, wake_ups
from poolrt.workers.kernels.native.atomics import atomic_load, atomic_store, pause
from poolrt.workers.kernels.native.compiler.codegen import compile_function
from poolrt.workers.kernels.native.region_queue import ENDED, LINE, SLEEPERS, TIMES
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.python_tasks import python_region
from poolrt.workers.threadpools.regions import PackedRegions

from .kinds import Loop

BOUND_S = 20.0
#: Pauses of a thread that is late: some 20 ms.
LATE = 1 << 19
#: Nanoseconds that a region is thought to take: worth a wake-up, and not worth one.
LONG, SHORT = 1 << 40, 1
#: A word of the queue that nothing else uses.
SEEN = TIMES + LINE - 8


def note_late(queue: int, work: int, ticks: int) -> None:
    """Note the time of a region's tasks as `wake_ups.note_work` does, but late; for kernels."""
    for _ in range(LATE):
        pause()
    wake_ups.note_work(queue, work, ticks)


def look_ahead(queue: int, number: int, work: int) -> int:
    """Return what `wake_ups.work_ahead` does, and note whether the region before a number has not ended; for kernels."""
    if atomic_load(queue + ENDED) < number:
        atomic_store(queue + SEEN, 1)
    return wake_ups.work_ahead(queue, number, work)


def kernels() -> Loop:
    """Return the kernels of native pools as the module has them now."""
    loop, submit, nest, clock = (
        load_object(compile_function(part, *region_loop.make(host_isa(), part), host_isa()))
        for part in ("loop", "submit", "nest", "clock")
    )
    return loop, submit, nest, clock


def test_a_nested_region_has_ended_when_the_thread_of_its_last_task_has_left_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(region_loop, "note_work", note_late)
    begun, own = threading.Event(), threading.Event()
    kept: list[PackedRegions] = []  # a thread that is late must not write to what is free
    ticks: list[int] = []
    with NativePool(2, kernels=kernels()) as pool:

        def nested(_i: int, _n: int) -> None:
            if threading.current_thread() is caller:
                assert begun.wait(BOUND_S)
                own.set()
            else:
                begun.set()
                assert own.wait(BOUND_S)

        def task(_i: int, _n: int) -> None:
            regions = PackedRegions([python_region(2, nested, threading.local())._replace(nanoseconds=LONG)])
            kept.append(regions)
            pool.run_regions(regions)
            ticks.append(regions._times[1])

        caller = threading.current_thread()
        for _ in range(5):
            begun.clear()
            own.clear()
            pool.parallel_for(1, task)
    assert ticks == [0] * 5, "the region's memory is written after its end"


def test_the_work_ahead_is_looked_at_before_the_region_ends_that_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_loop, "work_ahead", look_ahead)
    with NativePool(2, kernels=kernels(), spin_us=0) as pool:
        region = python_region(2, lambda _i, _n: None, threading.local())._replace(nanoseconds=SHORT)
        regions = PackedRegions([region] * 5)
        words = pool._queue._words
        seen = ctypes.c_int64.from_address(ctypes.addressof(words[0]) + SEEN)
        end = time.monotonic() + BOUND_S
        while not seen.value:
            assert time.monotonic() < end, "not looked at, or only afterwards"
            if words[SLEEPERS // LINE].value:
                pool.run_regions(regions)
