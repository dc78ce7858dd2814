"""A pool without work takes no processor time, and notices what happens nevertheless."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import poolrt

from .prepared import load, rings_of
from .processes import descendants, is_alive, relu_graph, stopped, wait_until, workers_of

_X = np.ones((4, 8), np.float32)
#: Seconds without a switch that count as rest: longer than the second between two ticks.
_REST_S = 2.5
#: Seconds between two looks.
_LOOKS_S = 0.1
#: Seconds until a pool rests: processes that have created something are kept for 30 s.
_BOUND_S = 90.0


def switches(pid: int) -> dict[str, str]:
    """Return how often each thread of a process, and of those below it, has waited or was interrupted so far."""
    found = {}
    for each in (pid, *descendants(pid)):
        for path in Path(f"/proc/{each}/task").glob("*/status"):
            try:
                lines = path.read_text(encoding="ascii").splitlines()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
            found[str(path)] = " ".join(line for line in lines if "ctxt_switches" in line)
    return found


def wait_for_rest(coordinator: int) -> None:
    """Wait until no thread of a pool does anything for a while."""
    before: dict[str, str] = {}
    since = 0.0

    def rests() -> bool:
        nonlocal before, since
        # A look at all threads takes some 5 ms of processor time.
        time.sleep(_LOOKS_S)
        now, counts = time.monotonic(), switches(coordinator)
        if counts != before:
            before, since = counts, now
        return now - since >= _REST_S

    wait_until(rests, "no thread of the pool does anything", _BOUND_S)


def test_no_process_of_a_pool_without_work_does_anything(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        # Given a pool that has started, then one that has run a model by messages, and one with rings of runs and calls
        coordinator = pool.stats()["pid"]
        workers_of(pool)
        wait_for_rest(coordinator)
        model = pool.load(relu_graph())
        assert model.run(x=_X)["y"].sum() == 32
        wait_for_rest(coordinator)
        for _ in range(20):
            model.run(x=_X)
            assert pool.submit(abs, -1).result(_BOUND_S) == 1
            assert model.submit(x=_X).result(_BOUND_S)["y"].sum() == 32
        # When there is nothing to do, then no process does anything
        assert len(switches(coordinator)) >= 4
        wait_for_rest(coordinator)
        # And work is done as before
        assert model.run(x=_X)["y"].sum() == 32
        assert pool.submit(abs, -1).result(_BOUND_S) == 1


def test_a_pool_without_work_replaces_a_worker_that_stays_stopped(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        coordinator = pool.stats()["pid"]
        first, _ = workers_of(pool)
        wait_for_rest(coordinator)
        # When a worker is stopped for a moment, then the pool rests again
        with stopped(first):
            time.sleep(0.2)
        wait_for_rest(coordinator)
        assert is_alive(first)
        # When it stays stopped, then it is killed, although no message comes
        os.kill(first, signal.SIGSTOP)
        wait_until(lambda: not is_alive(first), "the stopped worker is killed")
        assert first not in workers_of(pool, killed=[first])
        # And the pool rests again
        wait_for_rest(coordinator)


def test_a_run_on_the_ring_of_a_worker_that_is_stopped_while_the_pool_rests_is_done(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        model = pool.load(relu_graph())
        for _ in range(20):
            model.run(x=_X)
        coordinator = pool.stats()["pid"]
        (worker,) = workers_of(pool)
        wait_for_rest(coordinator)
        os.kill(worker, signal.SIGSTOP)
        assert model.run(x=_X, timeout=_BOUND_S)["y"].sum() == 32
        assert workers_of(pool, killed=[worker]) != [worker]


def test_an_entry_without_a_bell_is_found_in_a_pool_that_rests(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        load(pool, workers=1)
        coordinator = pool.stats()["pid"]
        (worker,) = workers_of(pool)
        (ring,) = rings_of(pool)
        wait_for_rest(coordinator)
        # Given an entry of which no process is told, then the coordinator's next look at rings finds it
        ring._ring.withdraw(ring._ring.submitted + 1)
        ring._ring.append(0, (), ())
        wait_until(lambda: not ring.load, "the worker has looked", _BOUND_S)
        assert workers_of(pool) == [worker]
