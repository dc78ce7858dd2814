"""Runs on a pool, beside what other pools of processes and a plain connection of two processes take.

A run of a model that costs next to nothing, one after the other and from several threads; the same with as many processes
that compute as there are processors. The rivals are `ProcessPoolExecutor`, `multiprocessing.Pool`, loky and joblib with the same
computation in NumPy, and the floor is a message of the same size to another process and back. All take turns in the same run.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

sys.path.insert(0, os.path.dirname(__file__))

import joblib
import loky
import numpy as np
from measure import alternate, arguments, record, sized

import poolrt

WORKERS: Final = 2
ROUNDS: Final = 5
#: Calls of one measurement, and threads that call at once.
CALLS: Final = sized(400, 20)
THREADS: Final = 8
#: Goal for the median of a run, as a part of the rival's.
GOAL: Final = 0.4
#: Runs in flight at once, and microseconds of spins of the pool that has some.
IN_FLIGHT: Final = 64
SPIN_US: Final = 50


def relu(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return what the model computes."""
    return np.maximum(x, 0)


def each(call: Callable[[], object]) -> list[float]:
    """Return the seconds of each of some calls, one after the other."""
    found = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return found


def median(call: Callable[[], object]) -> float:
    """Return the median of some calls, in seconds."""
    return statistics.median(each(call))


def p99(call: Callable[[], object]) -> float:
    """Return the 99th percentile of some calls, in seconds."""
    return statistics.quantiles(each(call), n=100)[98]


def rate(call: Callable[[], object]) -> float:
    """Return the seconds for each call if several threads call at once."""

    def calls() -> None:
        for _ in range(CALLS // THREADS):
            call()

    threads = [threading.Thread(target=calls) for _ in range(THREADS)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - begin) / (CALLS // THREADS * THREADS)


@contextmanager
def computing(count: int) -> Iterator[None]:
    """Have so many processes compute without a break."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _echo(sock: socket.socket) -> None:
    while data := sock.recv(4096):
        sock.send(data)


def _in_flight(model: poolrt.Model, x: np.ndarray[Any, Any]) -> float:
    """Return the seconds for each run of a map with many runs in flight."""
    begin = time.perf_counter()
    for outputs in model.map(({"x": x} for _ in range(10 * CALLS)), in_flight=IN_FLIGHT):
        del outputs
    return (time.perf_counter() - begin) / (10 * CALLS)


def _in_flight_of(submit: Callable[[], Any]) -> float:
    """Return the seconds for each call of futures of which many are in flight."""
    begin = time.perf_counter()
    futures: deque[Any] = deque()
    for _ in range(CALLS):
        if len(futures) >= IN_FLIGHT:
            futures.popleft().result()
        futures.append(submit())
    while futures:
        futures.popleft().result()
    return (time.perf_counter() - begin) / CALLS


@contextmanager
def _apart(*pids: int) -> Iterator[None]:
    """Have this process on one processor and some others on another one."""
    before = os.sched_getaffinity(0)
    first, last = min(before), max(before)
    os.sched_setaffinity(0, {first})
    for pid in pids:
        os.sched_setaffinity(pid, {last})
    try:
        yield
    finally:
        for pid in (0, *pids):
            os.sched_setaffinity(pid, before)


def _after_pause(call: Callable[[], object]) -> float:
    """Return the median of calls of which each follows a pause of a millisecond, in seconds."""
    found = []
    for _ in range(CALLS // 4):
        time.sleep(0.001)
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def _report(title: str, found: dict[str, float], goal: float) -> None:
    lines = [f"{name}: {seconds * 1e6:.1f} us" for name, seconds in found.items()]
    ratio = found["poolrt"] / found["ProcessPoolExecutor"]
    record(f"pool: {title}", [*lines, f"ratio {ratio:.2f} to ProcessPoolExecutor (goal: at most {goal:g})"])


def _report_pinned(
    graph: poolrt.Graph,
    x: np.ndarray[Any, Any],
    home: str,
    model: poolrt.Model,
    pool: poolrt.Pool,
    bounce: Callable[[], object],
    echo: int,
) -> None:
    """Record runs of a process and a worker on two processors, beside a message and back between such."""
    options: dict[str, Any] = {"threads": 1, "home": home, "redis_url": f"unix://{home}/none.sock"}
    with poolrt.Pool(workers=WORKERS, spin_us=SPIN_US, **options) as spinning:
        fast = spinning.load(graph, progress=False)
        for _ in range(8):
            fast.run(x=x)
        pids = [worker["pid"] for each in (pool, spinning) for worker in each.stats()["workers"]]
        with _apart(echo, *pids):
            calls = {
                "poolrt": lambda: median(lambda: model.run(x=x)),
                f"poolrt, spin_us={SPIN_US}": lambda: median(lambda: fast.run(x=x)),
                "a message and back": lambda: median(bounce),
            }
            found = alternate(calls, ROUNDS)
    floor = found["a message and back"]
    lines = [
        f"{name}: {seconds * 1e6:.1f} us, {seconds / floor:.2f} of a message and back"
        for name, seconds in found.items()
    ]
    record("pool: a run of 16 values on two processors, median", lines)


def main() -> None:
    arguments(__doc__)
    x = np.ones(16, np.float32)
    graph = poolrt.Graph("relu")
    graph.output("y", graph.eltwise(graph.input("x", (16,)), "relu"))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    echo = multiprocessing.get_context("fork").Process(target=_echo, args=(theirs,), daemon=True)
    echo.start()
    theirs.close()

    def bounce() -> None:
        ours.send(x.tobytes())
        ours.recv(4096)

    with (
        tempfile.TemporaryDirectory() as home,
        ProcessPoolExecutor(WORKERS) as rival,
        multiprocessing.get_context("fork").Pool(WORKERS) as plain,
        joblib.Parallel(n_jobs=WORKERS) as parallel,
        poolrt.Pool(workers=WORKERS, threads=1, home=home, redis_url=f"unix://{home}/none.sock") as pool,
    ):
        model = pool.load(graph, progress=False)
        np.testing.assert_array_equal(model.run(x=x)["y"], relu(x))
        np.testing.assert_array_equal(rival.submit(relu, x).result(), relu(x))
        reusable = loky.get_reusable_executor(WORKERS)
        delayed = [joblib.delayed(relu)(x)]
        calls: dict[str, Callable[[], object]] = {
            "poolrt": lambda: model.run(x=x),
            "ProcessPoolExecutor": lambda: rival.submit(relu, x).result(),
            "multiprocessing.Pool": lambda: plain.apply(relu, (x,)),
            "loky": lambda: reusable.submit(relu, x).result(),
            "joblib": lambda: parallel(delayed),
            "a message and back": bounce,
        }
        for call in calls.values():
            each(call)

        def compare(measure: Callable[[Callable[[], object]], float], names: list[str]) -> dict[str, float]:
            return alternate({name: lambda name=name: measure(calls[name]) for name in names}, ROUNDS)

        both = [name for name in calls if name not in ("joblib", "a message and back")]
        _report("a run after a pause of 1 ms, median", compare(_after_pause, [*both, "a message and back"]), 1.0)
        flights: dict[str, Callable[[], float]] = {
            "poolrt": lambda: _in_flight(model, x),
            "poolrt, a future each": lambda: _in_flight_of(lambda: model.submit(x=x)),
            "ProcessPoolExecutor": lambda: _in_flight_of(lambda: rival.submit(relu, x)),
        }
        _report(f"runs with {IN_FLIGHT} in flight, time for each", alternate(flights, ROUNDS), GOAL)
        _report_pinned(graph, x, home, model, pool, bounce, echo.pid or 0)
        _report("a run of 16 values, median", compare(median, list(calls)), GOAL)
        _report(f"runs from {THREADS} threads, time for each", compare(rate, both), GOAL)
        with computing(os.cpu_count() or 1):
            _report("a run beside processes that compute, p99", compare(p99, both), 1.0)
        reusable.shutdown(kill_workers=True)
        joblib.externals.loky.get_reusable_executor().shutdown(kill_workers=True)
    ours.close()
    echo.kill()  # it has inherited the other end too
    echo.join()


if __name__ == "__main__":
    main()
