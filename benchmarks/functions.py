"""Plain functions on a pool, beside other executors of processes, in the same run.

The median of one call after the other, `map` in chunks of one and of 100, 64 futures in flight, an array of 64 MiB to a function
and back, beside two copies of it, and one that is in shared memory already, beside a call without one. Arrays are sent to all
workers some times before: their first touches of memory are not measured.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final

sys.path.insert(0, os.path.dirname(__file__))

import joblib
import loky
import numpy as np
from measure import alternate, arguments, record, sized

import poolrt

WORKERS: Final = 2
ROUNDS: Final = 5
#: Calls of one measurement: one after the other, of `map`, with futures in flight.
CALLS: Final = sized(400, 10)
MAPPED: Final = sized(20_000, 200)
IN_FLIGHT: Final = 64
FLOWING: Final = sized(4_000, 100)
CHUNK: Final = 100
ARRAY_BYTES: Final = sized(64 << 20, 1 << 20)
#: Rounds of calls with arrays on all workers at once before any is measured.
WARM: Final = sized(6, 1)


def square(x: int) -> int:
    """Return what the calls compute."""
    return x * x


def same(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array."""
    return x


def twin(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a new array, which a copy makes."""
    return x.copy()


def first(x: np.ndarray[Any, Any]) -> int:
    """Return one element of an array."""
    return int(x[0])


def median(call: Callable[[], object]) -> float:
    """Return the median of some calls, in seconds."""
    found = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def warm(submit: Callable[..., Any], fn: Callable[..., object], array: np.ndarray[Any, Any]) -> None:
    """Call a function with an array in all workers at once, some times."""
    for _ in range(WARM):
        under_way = [submit(fn, array) for _ in range(WORKERS)]
        while under_way:
            under_way.pop().result()


def spent(call: Callable[[], object], count: int) -> float:
    """Return the seconds of each of ``count`` calls that one call makes."""
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) / count


def flow(submit: Callable[[Callable[[int], int], int], Any]) -> None:
    """Keep some futures in flight, and take their results in order."""
    under_way: deque[Any] = deque()
    for number in range(FLOWING):
        if len(under_way) == IN_FLIGHT:
            under_way.popleft().result()
        under_way.append(submit(square, number))
    while under_way:
        under_way.popleft().result()


def _report(title: str, found: dict[str, float], unit: str, goal: str) -> None:
    lines = []
    for name, seconds in found.items():
        value = f"{1 / seconds:,.0f} calls/s" if unit == "rate" else f"{seconds * 1e6:,.1f} us"
        lines.append(f"{name}: {value}")
    rival = found[list(found)[1]]
    lines.append(f"time beside {list(found)[1]}: ratio {found['poolrt'] / rival:.3f} ({goal})")
    record(f"functions: {title}", lines)


def main() -> None:
    arguments(__doc__)
    array = np.ones(ARRAY_BYTES, np.uint8)
    room = np.ones(ARRAY_BYTES, np.uint8), np.ones(ARRAY_BYTES, np.uint8)
    with (
        tempfile.TemporaryDirectory() as home,
        ProcessPoolExecutor(WORKERS) as rival,
        multiprocessing.get_context("fork").Pool(WORKERS) as plain,
        joblib.Parallel(n_jobs=WORKERS) as parallel,
        poolrt.Pool(workers=WORKERS, threads=1, home=home, redis_url=f"unix://{home}/none.sock") as pool,
    ):
        reusable = loky.get_reusable_executor(WORKERS)
        numbers = range(MAPPED)
        expected = [number * number for number in numbers]
        assert list(pool.map(square, numbers)) == list(pool.map(square, numbers, chunksize=CHUNK)) == expected
        assert (
            list(rival.map(square, numbers, chunksize=CHUNK)) == list(reusable.map(square, range(10))) + expected[10:]
        )

        def copy() -> None:
            np.copyto(room[0], array)
            np.copyto(room[1], room[0])

        def copy_again() -> None:
            copy()
            room[1].copy()

        def of(
            calls: dict[str, Callable[[], object]], measure: Callable[[Callable[[], object]], float]
        ) -> dict[str, float]:
            for call in calls.values():
                call()
            return alternate({name: lambda call=call: measure(call) for name, call in calls.items()}, ROUNDS)

        single: dict[str, Callable[[], object]] = {
            "poolrt": lambda: pool.submit(square, 3).result(),
            "ProcessPoolExecutor": lambda: rival.submit(square, 3).result(),
            "multiprocessing.Pool": lambda: plain.apply(square, (3,)),
            "loky": lambda: reusable.submit(square, 3).result(),
            "joblib": lambda: parallel([joblib.delayed(square)(3)]),
        }
        _report("one call, median", of(single, median), "time", "goal: at most 0.6")
        ones: dict[str, Callable[[], object]] = {
            "poolrt": lambda: list(pool.map(square, numbers)),
            "ProcessPoolExecutor": lambda: list(rival.map(square, numbers)),
            "multiprocessing.Pool": lambda: plain.map(square, numbers, chunksize=1),
            "loky": lambda: list(reusable.map(square, numbers)),
        }
        found = of(ones, lambda call: spent(call, MAPPED))
        _report("map in chunks of one", found, "rate", "goal: 60,000 calls/s")
        chunks: dict[str, Callable[[], object]] = {
            "poolrt": lambda: list(pool.map(square, numbers, chunksize=CHUNK)),
            "ProcessPoolExecutor": lambda: list(rival.map(square, numbers, chunksize=CHUNK)),
            "multiprocessing.Pool": lambda: plain.map(square, numbers, chunksize=CHUNK),
            "loky": lambda: list(reusable.map(square, numbers, chunksize=CHUNK)),
        }
        found = of(chunks, lambda call: spent(call, MAPPED))
        _report(f"map in chunks of {CHUNK}", found, "rate", "goal: 3,000,000 calls/s")
        flows: dict[str, Callable[[], object]] = {
            "poolrt": lambda: flow(pool.submit),
            "ProcessPoolExecutor": lambda: flow(rival.submit),
            "loky": lambda: flow(reusable.submit),
        }
        found = of(flows, lambda call: spent(call, FLOWING))
        _report(f"{IN_FLIGHT} futures in flight", found, "rate", "goal: at most 0.1")
        arrays: dict[str, Callable[[], object]] = {
            "poolrt": lambda: pool.submit(same, array).result(),
            "two copies": copy,
            "ProcessPoolExecutor": lambda: rival.submit(same, array).result(),
        }
        for each in (pool.submit, rival.submit):
            warm(each, same, array)
        found = of(arrays, lambda call: spent(call, 1))
        _report(
            f"an array of {ARRAY_BYTES >> 20} MiB to a function and back",
            found,
            "time",
            "goal: at most 1.3 of two copies",
        )
        arrays = {
            "poolrt": lambda: pool.submit(twin, array).result(),
            "three copies": copy_again,
            "ProcessPoolExecutor": lambda: rival.submit(twin, array).result(),
        }
        for each in (pool.submit, rival.submit):
            warm(each, twin, array)
        found = of(arrays, lambda call: spent(call, 1))
        _report(
            f"an array of {ARRAY_BYTES >> 20} MiB to a function, and a new one back", found, "time", "goal: at most 1.3"
        )
        shared = pool.submit(same, array).result()
        warm(pool.submit, first, shared)
        arrays = {
            "poolrt": lambda: pool.submit(first, shared).result(),
            "a call of a number": lambda: pool.submit(square, 3).result(),
            "there and back": lambda: pool.submit(same, shared).result(),
        }
        _report(
            f"an array of {ARRAY_BYTES >> 20} MiB in shared memory to a function, median",
            of(arrays, median),
            "time",
            "goal: at most 1.5",
        )
        reusable.shutdown(kill_workers=True)
        joblib.externals.loky.get_reusable_executor().shutdown(kill_workers=True)


if __name__ == "__main__":
    main()
