"""Sleeping threads of a native pool wake for a new region and for the end of an awaited one; late ones take no wrong task."""

from __future__ import annotations

import ctypes
import threading
import time

from poolrt.workers.kernels.native.region_loop import SLICE_MS
from poolrt.workers.kernels.native.region_queue import LINE, NEXT, RING, SLEEPERS
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.native_queue import CAPACITY, NativeQueue
from poolrt.workers.threadpools.python_tasks import python_region
from poolrt.workers.threadpools.regions import PackedRegions

from .kinds import Loop

BOUND_S = 20.0
#: Attempts; a busy machine disturbs some.
TIMES = 10


def until_asleep(pool: NativePool) -> None:
    """Return when one thread has just gone to sleep; unless woken, it sleeps for a slice of time."""
    end = time.monotonic() + BOUND_S
    while pool._queue._words[SLEEPERS // LINE].value != 1:
        assert time.monotonic() < end, "no thread sleeps"
        time.sleep(0.001)


def is_prompt(seconds: list[float]) -> bool:
    return min(seconds) < SLICE_MS / 2 / 1000


def test_a_sleeping_thread_is_woken_by_a_region(loop: Loop) -> None:
    found: list[float] = []
    with NativePool(1, True, loop) as pool:
        while len(found) < TIMES and not (found and is_prompt(found)):
            until_asleep(pool)
            begun, start = threading.Event(), time.monotonic()
            pool.parallel_for(1, lambda _i, _n, begun=begun: begun.set())  # type: ignore[misc]
            assert begun.wait(BOUND_S)
            found.append(time.monotonic() - start)
            pool.wait()
    assert is_prompt(found), found


def awaited(pool: NativePool) -> float:
    """Return the seconds from the end of a task to that of waiting for it."""
    begun, gate, ended = threading.Event(), threading.Event(), [0.0]

    def task(_i: int, _n: int) -> None:
        begun.set()
        assert gate.wait(BOUND_S)
        ended[0] = time.monotonic()

    def let_go() -> None:
        # The sleeping thread is then the waiting one.
        assert begun.wait(BOUND_S)
        until_asleep(pool)
        gate.set()

    pool.parallel_for(1, task)
    thread = threading.Thread(target=let_go, daemon=True)
    thread.start()
    pool.wait()
    seconds = time.monotonic() - ended[0]
    thread.join(BOUND_S)
    return seconds


def test_a_waiting_thread_is_woken_by_the_end_of_a_region(loop: Loop) -> None:
    found: list[float] = []
    with NativePool(1, True, loop) as pool:
        while len(found) < TIMES and not (found and is_prompt(found)):
            found.append(awaited(pool))
    assert is_prompt(found), found


def test_a_late_thread_takes_no_task_of_a_later_region_in_the_same_place(loop: Loop) -> None:
    ran: list[int] = []
    queue = NativeQueue(*loop)
    regions = PackedRegions([python_region(1, lambda i, _: ran.append(i), threading.local())])
    with queue.lock:
        queue.submit(regions, 0, 1)
    # Given the view of a thread that found the first region and paused until its record held another
    place = ctypes.c_int64.from_address(queue._words[RING // LINE].value + NEXT)
    place.value = CAPACITY << 32
    queue.run(1, helps=True)
    assert not ran
    # When the record holds the same region
    place.value = 0
    queue.run(1, helps=True)
    assert ran == [0]
    assert queue.ended == 1


def test_a_pool_thread_takes_tasks_from_the_end_of_a_region(loop: Loop) -> None:
    """What a thread's tasks of one region have left in its cache is then what its tasks of the next one need."""
    with NativePool(2, kernels=loop) as pool:
        for tasks in (2, 9, 40):
            taken: dict[int, list[int]] = {}
            both = threading.Barrier(2)

            def task(i: int, _n: int, taken: dict[int, list[int]] = taken, both: threading.Barrier = both) -> None:
                if threading.get_ident() not in taken:
                    taken[threading.get_ident()] = []
                    both.wait(BOUND_S)
                taken[threading.get_ident()].append(i)

            pool.parallel_for(tasks, task)
            (own,), (others,) = (
                [found for thread, found in taken.items() if (thread == threading.get_ident()) is here]
                for here in (True, False)
            )
            assert own == [*range(len(own))]
            assert others == [*reversed(range(len(own), tasks))]
