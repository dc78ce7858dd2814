"""Runs that wait on the ring of a worker that is held up are done by another one, long before the worker counts as lost."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.runs import held_up
from poolrt.runs.client_ring import ClientRing
from poolrt.workers.ipc.ring import RETURNED

from .prepared import X, load, rings_of
from .processes import BOUND_S, LONG, load_long, relu_graph, stopped, wait_until, workers_of

#: Values of a model whose tensors are too large for prepared places.
_LARGE = (128, 64)


@pytest.fixture
def own_pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        yield pool


def _load(pool: poolrt.Pool, shape: tuple[int, ...]) -> poolrt.Model:
    """Return a model that has a ring to each worker, whose ends are compiled."""
    load(pool)
    model = pool.load(relu_graph(shape), progress=False)

    def is_on_rings() -> bool:
        model.run(x=np.zeros(shape, np.float32))
        return sum(model._loaded.number in ring.models for ring in rings_of(pool)) == 2

    wait_until(is_on_rings, "rings are there")
    return model


def _all_runs(model: poolrt.Model, inputs: list[Any]) -> list[Any]:
    return [model.run(x=x)["y"] for x in inputs]


def _all_futures(model: poolrt.Model, inputs: list[Any]) -> list[Any]:
    return [future.result(BOUND_S)["y"] for future in [model.submit(x=x) for x in inputs]]


def _all_callbacks(model: poolrt.Model, inputs: list[Any]) -> list[Any]:
    futures = [model.submit(x=x) for x in inputs]
    called: list[Any] = []
    for future in futures:
        future.add_done_callback(called.append)
    wait_until(lambda: len(called) == len(inputs), "all are done")
    return [future.result()["y"] for future in futures]


def _mapped(model: poolrt.Model, inputs: list[Any]) -> list[Any]:
    return [outputs["y"].copy() for outputs in model.map(({"x": x} for x in inputs), in_flight=40)]


def _in_threads(model: poolrt.Model, inputs: list[Any]) -> list[Any]:
    with ThreadPoolExecutor(8) as threads:
        return [found["y"] for found in threads.map(lambda x: model.run(x=x), inputs)]


_WAYS = [_all_runs, _all_futures, _all_callbacks, _mapped, _in_threads]


@pytest.mark.parametrize("shape", [(4, 8), _LARGE], ids=["prepared", "not prepared"])
@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.one_in(3)
def test_runs_on_the_ring_of_a_stopped_worker_are_done_by_another(
    own_pool: poolrt.Pool, way: Callable[[poolrt.Model, list[Any]], list[Any]], shape: tuple[int, ...]
) -> None:
    model = _load(own_pool, shape)
    inputs = [*np.random.default_rng(0).standard_normal((60, *shape), np.float32)]
    stuck = 0
    for pid in workers_of(own_pool):
        with ThreadPoolExecutor(1) as threads, stopped(pid):
            found = threads.submit(way, model, inputs).result(BOUND_S)
            stuck += any(ring.load for ring in rings_of(own_pool))
        for x, y in zip(inputs, found, strict=True):
            np.testing.assert_array_equal(y, np.maximum(x, 0))
        # Given that the worker goes on, it executes none of those, and gets new ones
        wait_until(lambda: not any(ring.load for ring in rings_of(own_pool)), "the worker returns them")
    assert stuck > 0  # runs that come one after the other find one of the workers only
    _all_runs(model, inputs)


def test_nothing_that_was_moved_is_executed_by_the_worker_that_it_left(own_pool: poolrt.Pool) -> None:
    model = _load(own_pool, (4, 8))
    before = {ring.number: ring._ring.submitted for ring in rings_of(own_pool)}
    pids = workers_of(own_pool)
    with stopped(*pids):
        futures = [model.submit(x=X) for _ in range(40)]
        assert all(ring.load for ring in rings_of(own_pool))
        # Given that one of them remains stopped
        os.kill(pids[1], signal.SIGCONT)
        for future in futures:
            future.result(BOUND_S)
        (held,) = [ring for ring in rings_of(own_pool) if ring.load]
    wait_until(lambda: not held.load, "the worker returns them")
    statuses = [held._ring.status(sequence) for sequence in range(before[held.number] + 1, held._ring.submitted + 1)]
    assert set(statuses) == {RETURNED}


@pytest.mark.parametrize("calls_back", [False, True], ids=["waiting", "callbacks"])
@pytest.mark.one_in(2)
def test_a_run_that_a_stopped_worker_has_begun_waits_and_those_behind_it_do_not(
    own_pool: poolrt.Pool, calls_back: bool
) -> None:
    small = load(own_pool)
    long = load_long(own_pool)
    workers = _workers_of_rings(own_pool)
    with _stopped_in(own_pool, long) as (begun, held):
        futures = [small.submit(x=X) for _ in range(20)]
        (other,) = [ring for ring in rings_of(own_pool) if ring is not held]
        assert other.load > 0
        assert held.load > 1
        # Given that only the worker of the long run remains stopped
        os.kill(workers[other.number], signal.SIGCONT)
        if calls_back:
            called: list[Any] = []
            for future in [begun, *futures]:
                future.add_done_callback(called.append)
            wait_until(lambda: len(called) == len(futures), "those behind it are done")
        for future in futures:
            np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(X, 0))
        assert not begun.done()
        assert held._ring.taken == held._ring.done + 1
    assert (begun.result(BOUND_S)["y"] == 0).all()


def _workers_of_rings(pool: poolrt.Pool) -> dict[int, int]:
    """Return the process of the worker of each of two rings, neither of which has runs, by the number of the ring."""
    pids, rings = workers_of(pool), rings_of(pool)
    found = {}
    for pid, other in zip(pids, reversed(pids), strict=True):
        with stopped(other):
            for ring in rings:
                ring.probe()
            wait_until(lambda: not all(ring.load for ring in rings), "the worker that goes on returns its entry")
            (own,) = [ring for ring in rings if not ring.load]
            found[own.number] = pid
        wait_until(lambda: not any(ring.load for ring in rings), "the other one returns its entry, too")
    return found


@contextmanager
def _stopped_in(pool: poolrt.Pool, model: poolrt.Model) -> Iterator[tuple[Any, ClientRing]]:
    """Stop all workers while one of them executes a long run; give the run's future and its ring.

    A run that ends before its worker is stopped is followed by another one.
    """
    rings = rings_of(pool)

    def find_begun() -> list[ClientRing]:
        return [ring for ring in rings if ring._ring.taken > ring._ring.done]

    for _ in range(50):
        future = model.submit(x=np.zeros(LONG, np.float32))
        wait_until(lambda future=future: bool(find_begun()) or future.done(), "it has begun")  # type: ignore[misc]
        with stopped(*workers_of(pool)):
            if begun := find_begun():
                (held,) = begun
                yield future, held
                return
        future.result(BOUND_S)
    pytest.fail("all runs end before their worker is stopped")


def test_runs_stay_where_they_are_if_the_other_worker_is_stopped_too(own_pool: poolrt.Pool) -> None:
    model = load(own_pool)
    before = sum(ring._ring.submitted for ring in rings_of(own_pool))
    with ThreadPoolExecutor(1) as threads:
        with stopped(*workers_of(own_pool)):
            found = threads.submit(_all_runs, model, [X])
            wait_until(lambda: sum(ring._ring.submitted for ring in rings_of(own_pool)) > before, "it is submitted")
            time.sleep(1)  # some looks
            (used,) = [ring for ring in rings_of(own_pool) if ring.under_way]
            assert used.has_waiting
        np.testing.assert_array_equal(found.result(BOUND_S)[0], np.maximum(X, 0))
    assert used._ring.status(used._ring.done) != RETURNED


def test_an_entry_without_a_bell_is_found_and_its_worker_is_not_taken_forstopped(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, run_timeout_s=2.0, **settings) as pool:
        load(pool, workers=1)
        (pid,) = workers_of(pool)
        (ring,) = rings_of(pool)
        wait_until(lambda: ring._ring.words[26] != 0 and not ring._ring.words[26] & 1, "the worker sleeps")
        ring._ring.withdraw(ring._ring.submitted + 1)
        ring._ring.append(0, (), ())
        wait_until(lambda: not ring.load, "the worker has looked")
        assert workers_of(pool) == [pid]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(4, 8), _LARGE], ids=["prepared", "not prepared"])
def test_results_are_right_while_workers_stop_and_go_on_at_random(
    settings: dict[str, Any], shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_up, "_HELD_UP_S", 0.01)
    drawn = random.Random(5)
    inputs = [*np.random.default_rng(1).standard_normal((50, *shape), np.float32)]
    over = threading.Event()
    with poolrt.Pool(workers=3, threads=1, **settings) as pool:
        model = pool.load(relu_graph(shape), progress=False)
        for _ in range(8):
            model.run(x=inputs[0])

        def disturb() -> None:
            pids = workers_of(pool)
            while not over.is_set():
                with stopped(*drawn.sample(pids, drawn.randrange(1, 3))):
                    over.wait(drawn.uniform(0, 0.4))
                over.wait(drawn.uniform(0, 0.05))

        with ThreadPoolExecutor(4) as threads:
            disturbing = threads.submit(disturb)
            try:
                until = time.monotonic() + 15
                while time.monotonic() < until:
                    ways = drawn.sample([_all_runs, _all_futures, _all_callbacks, _mapped], 2)
                    for found in [threads.submit(way, model, inputs) for way in ways]:
                        for x, y in zip(inputs, found.result(3 * BOUND_S), strict=True):
                            np.testing.assert_array_equal(y, np.maximum(x, 0))
            finally:
                over.set()
            disturbing.result(BOUND_S)
        assert pool.stats()["workers_lost"] == 0
        model.close()
        wait_until(lambda: pool.stats()["queue"]["in_flight"] == 0, "nothing is left")
