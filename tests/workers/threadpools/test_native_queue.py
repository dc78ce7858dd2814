"""Threads of a native pool that sleep are woken: by what is submitted, and by the end of what they wait for."""

from __future__ import annotations

import threading
import time

from poolrt.workers.kernels.native.region_loop import LINE, SLEEPERS, SLICE_MS
from poolrt.workers.threadpools.native import NativePool

from .kinds import Loop

BOUND_S = 20.0
#: Attempts, of which the busiest machine disturbs some.
TIMES = 10


def until_asleep(pool: NativePool) -> None:
    """Return when one thread has just gone to sleep: unless woken, it stays there for a slice of time."""
    end = time.monotonic() + BOUND_S
    while pool._queue._words[SLEEPERS // LINE].value != 1:
        assert time.monotonic() < end, "nobody sleeps"
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
        # The one that sleeps is then the one that waits.
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
