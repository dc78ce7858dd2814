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


def _report(title: str, found: dict[str, float], goal: float) -> None:
    lines = [f"{name}: {seconds * 1e6:.1f} us" for name, seconds in found.items()]
    ratio = found["poolrt"] / found["ProcessPoolExecutor"]
    record(f"pool: {title}", [*lines, f"ratio to ProcessPoolExecutor: {ratio:.2f} (goal: at most {goal:g})"])


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
