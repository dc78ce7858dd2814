"""Executors, contexts and caches of one process are right whatever another thread or a fork does between any two lines."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pytest

from poolrt import DeviceContext, Executor, Graph
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.threads import ThreadsPool
from tests.at_lines import at_each_line, at_line
from tests.workers.threadpools.kinds import region_loop

from .networks import Array, array

BOUND_S = 60.0
#: Seconds after which a process that hangs is ended by SIGALRM.
CHILD_S = 20
#: Processes that are forked in the middle of the work of a thread.
FORKS = 12


def doubled(name: str, rows: int = 3) -> Graph:
    """Return a graph of two outputs: twice x, and its positive values."""
    graph = Graph(name)
    x = graph.input("x", (rows, 40))
    graph.output("doubled", graph.eltwise(x, "linear", alpha=2.0))
    graph.output("positive", graph.eltwise(x, "relu"))
    return graph


class Used:
    """An executor with what it has returned and was given, which stays as it is."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._kept: list[tuple[Array, dict[str, Array]]] = []

    def run(self, rows: int, seed: int) -> None:
        """Run and check the outputs."""
        x = array(rows, 40, seed=seed)
        self._kept.append((x, self._executor.run(x=x)))
        self.check(self._kept[-1:])

    def check(self, kept: list[tuple[Array, dict[str, Array]]] | None = None) -> None:
        """Check what was returned, all by default."""
        for x, outputs in self._kept if kept is None else kept:
            np.testing.assert_array_equal(outputs["doubled"], 2 * x)
            np.testing.assert_array_equal(outputs["positive"], np.maximum(x, 0))


@pytest.mark.parametrize("shared", [False, True])
def test_another_thread_may_run_an_executor_between_any_two_lines_of_a_run(
    cache: PrimitiveProvider, shared: bool
) -> None:
    # So few instances that each new size evicts others.
    used = Used(Executor(doubled("shared by threads"), context=DeviceContext(3, shared=shared), cache=cache))
    others: list[Future[None]] = []
    rng = random.Random(0)

    def run_beside() -> None:
        others.append(pool.submit(used.run, rng.choice((2, 3, 4)), len(others)))
        # It waits longer only if it waits for a lock, until this thread is through.
        wait(others, timeout=0.02)

    def run_both() -> None:
        used.run(3, 1000 + len(others))
        for each in others:
            each.result(BOUND_S)

    for rows in (2, 3, 4):
        used.run(rows, 0)
    with ThreadPoolExecutor(1) as pool:
        assert at_each_line(run_both, run_beside, "inprocess/", "workers/plans/", step=6 if shared else 4) > 20
    used.check()


def use_all(cache: PrimitiveProvider, warm: Executor) -> None:
    """Use all that threads share which compute in one process: pools, executors old and new, caches and counts."""
    for pool in (ThreadsPool(2), NativePool(2, kernels=region_loop())):
        ran: list[int] = []
        with pool:
            pool.parallel_for(5, lambda i, _, ran=ran: ran.append(i))  # type: ignore[misc]
        assert sorted(ran) == [*range(5)]
    for executor in (warm, Executor(doubled("new"), cache=cache)):
        for rows in (3, 2, 2):
            Used(executor).run(rows, rows)
    assert cache.stats()["size"] > 0


# Python 3.12 warns of threads at a fork, which this test is about.
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_process_that_is_forked_between_any_two_lines_of_a_thread_works(cache: PrimitiveProvider) -> None:
    warm = Executor(doubled("old"), cache=cache)
    use_all(cache, warm)
    with at_line(0, lambda: None) as lines:
        use_all(cache, warm)
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    for _ in range(FORKS):
        stop = rng.randrange(1, lines.count)
        stopped, goes_on = threading.Event(), threading.Event()
        places: list[Any] = []

        def pause(stopped: threading.Event = stopped, goes_on: threading.Event = goes_on) -> None:
            stopped.set()
            goes_on.wait(BOUND_S)

        def work(stop: int = stop, places: list[Any] = places, stopped: threading.Event = stopped) -> None:
            with at_line(stop, pause) as found:
                places.append(found)
                use_all(cache, warm)
            stopped.set()

        thread = threading.Thread(target=work)
        thread.start()
        assert stopped.wait(BOUND_S)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.alarm(CHILD_S)
                use_all(cache, warm)
                gc.collect()
                code = 0
            finally:
                os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        goes_on.set()
        thread.join()
        assert status == 0, f"seed {seed}: forked before line {stop}, {places[0].where}"
