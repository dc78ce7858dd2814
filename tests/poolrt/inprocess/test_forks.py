"""Executors, their contexts and locks in a process that is forked while threads of the parent run them."""

from __future__ import annotations

import gc
import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.cachestore.forked_locks import freed_in_children
from poolrt.workers.primitives.provider import PrimitiveProvider

#: Seconds after which a child that hangs is ended by SIGALRM.
_BOUND_S = 20


def _status_of_fork(graph: poolrt.Executor) -> int:
    """Fork, run the executor in the child with an input of its own and a new shape, and return the child's exit status."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(_BOUND_S)
            same = graph.run(x=np.full((4, 8), 3, np.float32))["y"].sum() == 96
            other = graph.run(x=np.full((2, 8), 3, np.float32))["y"].sum() == 48
            code = 0 if same and other else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# Python 3.12 warns of threads at a fork, which this test is about.
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_an_executor_runs_in_a_child_that_is_forked_while_threads_run_it(cache: PrimitiveProvider) -> None:
    graph = poolrt.Graph("forked")
    graph.output("y", graph.eltwise(graph.input("x", (4, 8), "float32"), "relu"))
    executor = poolrt.Executor(graph, cache=cache)
    x, over, wrong = np.ones((4, 8), np.float32), threading.Event(), []
    for rows in (4, 2):
        executor.run(x=x[:rows])  # the kernels are there before a child needs them

    def work() -> None:
        while not over.is_set():
            if executor.run(x=x)["y"].sum() != 32:
                wrong.append("a wrong result")

    threads = [threading.Thread(target=work) for _ in range(3)]
    try:
        for thread in threads:
            thread.start()
        # One of the threads holds the executor at nearly every moment.
        assert [_status_of_fork(executor) for _ in range(5)] == [0] * 5
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert executor.run(x=x)["y"].sum() == 32


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_lock_is_free_in_the_child_and_held_in_the_parent_and_none_is_kept() -> None:
    locks: list[Any] = [freed_in_children(threading.Lock()), freed_in_children(threading.RLock())]
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with locks[0], locks[1]:
            held.set()
            over.wait(_BOUND_S)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(_BOUND_S)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if all(lock.acquire(blocking=False) for lock in locks) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not any(lock.acquire(blocking=False) for lock in locks)
    over.set()
    holder.join()
    from poolrt.cachestore import forked_locks

    gc.collect()
    before = len(forked_locks._registry())
    freed_in_children(threading.Lock())
    gc.collect()
    assert len(forked_locks._registry()) == before
