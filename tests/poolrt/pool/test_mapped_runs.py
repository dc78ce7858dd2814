"""Maps and futures in prepared places: in order, within their bounds, and right with slow and failing sources and users."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import RunFailed, WorkerLost
from poolrt.runs.client_ring import ClientRing
from poolrt.runs.mapped_runs import _MappedRuns
from poolrt.runs.prepared_runs import LARGEST
from poolrt.workers.ipc.ring import CAPACITY, DONE, WORKER_SLEEPS

from .created import create
from .prepared import X, crashing_graph, load, places_of, rings_of
from .processes import BOUND_S, wait_until, workers_of


@pytest.fixture(scope="module")
def crashing() -> poolrt.Graph:
    return crashing_graph()


@pytest.fixture
def own_pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        yield pool


@pytest.fixture(scope="module")
def pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        yield pool


@pytest.mark.parametrize("in_flight", [1, 2, 8, 64, 300])
def test_map_yields_all_outputs_in_order_for_usual_and_unusual_inputs(pool: poolrt.Pool, in_flight: int) -> None:
    model = load(pool)
    rng = np.random.default_rng()
    given = [rng.standard_normal((4, 8)).astype(np.float32) for _ in range(700)]
    shared = pool.empty((4, 8), "float32")
    shared[...] = given[13]

    def batches() -> Iterator[Any]:
        for number, x in enumerate(given):
            if number == 13:
                yield {"x": shared}
            elif number % 50 == 7:
                yield {"x": x.tolist()}
            elif number % 50 == 8:
                yield MappingProxyType({"x": x})
            elif number % 50 == 9:
                time.sleep(0.002)
                yield {"x": x.copy()}
            else:
                reused[...] = x  # it may be changed once the next one is asked for
                yield {"x": reused}

    reused = np.empty((4, 8), np.float32)
    kept = [outputs["y"] for outputs in model.map(batches(), in_flight)]
    assert len(kept) == len(given)
    for x, y in zip(given, kept, strict=True):
        np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_map_reads_no_further_ahead_than_it_may_and_leaves_nothing_when_it_is_closed(pool: poolrt.Pool) -> None:
    model = load(pool)
    read = 0

    def endless() -> Iterator[dict[str, Any]]:
        nonlocal read
        while True:
            read += 1
            yield {"x": X}

    for limit in (1, 5, 64):
        read = 0
        mapped = model.map(endless(), limit)
        for number in range(200):
            np.testing.assert_array_equal(next(mapped)["y"], np.maximum(X, 0))
            assert read <= number + 1 + limit
        mapped.close()  # type: ignore[attr-defined]
        np.testing.assert_array_equal(model.run(x=X)["y"], np.maximum(X, 0))
        wait_until(lambda: not any(map(_under_way, rings_of(pool))), "nothing is under way")


def test_a_model_may_be_unloaded_before_a_worker_meets_its_withdrawn_runs(pool: poolrt.Pool) -> None:
    for _ in range(20):
        model = load(pool)
        mapped = model.map(({"x": X} for _ in itertools.count()), 64)
        for _ in range(40):
            next(mapped)
        mapped.close()  # type: ignore[attr-defined]
        model.close()
    assert pool.stats()["workers_lost"] == 0
    np.testing.assert_array_equal(load(pool).run(x=X)["y"], np.maximum(X, 0))


def _under_way(ring: ClientRing) -> int:
    ring.look()
    return len(ring.under_way)


def test_a_model_stays_loaded_while_a_run_waits_that_an_interrupt_kept_from_being_noted(own_pool: poolrt.Pool) -> None:
    model, kept = load(own_pool), load(own_pool)
    wait_until(lambda: all(ring.words[WORKER_SLEEPS] > 0 for ring in rings_of(own_pool)), "the workers sleep")
    # Given a run that was published, and a map that ends before it has noted that, and has not woken the worker
    mapped = _MappedRuns(model, 8, None)
    (places, *_) = places_of(model)
    mapped.places = places
    before = places.words[DONE]
    assert places.put({"x": X}, mapped, model._loaded) > 0
    mapped.cancel()
    # When its model is dropped, then no worker finds a run of a model that it does not have
    del model, mapped, places
    gc.collect()
    own_pool.stats(BOUND_S)  # the coordinator has handled all messages before
    for _ in range(20):
        np.testing.assert_array_equal(kept.run(x=X)["y"], np.maximum(X, 0))
    wait_until(lambda: not any(ring.load for ring in rings_of(own_pool)), "the workers have met all runs")
    assert sum(ring.words[DONE] for ring in rings_of(own_pool)) > before


def test_map_raises_the_error_of_a_run_in_its_turn(crashing: poolrt.Graph, settings: dict[str, Any]) -> None:
    create(settings["home"], crashing)
    with poolrt.Pool(workers=1, threads=1, retries=1, **settings) as pool:
        model = load(pool, crashing, 1, x=np.full(1, 0.5, np.float32))
        values = [np.full(1, 0.25 if number != 40 else 2, np.float32) for number in range(100)]
        mapped = model.map(({"x": x} for x in values), 64)
        assert [float(next(mapped)["y"][0]) for _ in range(40)] == [0.25] * 40
        with pytest.raises(RunFailed, match=r"ValueError: large$"):
            next(mapped)
        values[40][:] = -1
        mapped = model.map(({"x": x} for x in values), 64)
        with pytest.raises(WorkerLost):
            list(mapped)
        assert model.run(x=np.full(1, 0.5, np.float32))["y"][0] == 0.5


def test_map_is_right_while_workers_are_killed_and_functions_are_called(own_pool: poolrt.Pool) -> None:
    model = load(own_pool)
    stop = threading.Event()

    def disturb() -> int:
        count = 0
        while not stop.is_set():
            own_pool.submit(pow, 2, 3).result(BOUND_S)
            count += 1
        return count

    rng = np.random.default_rng()
    given = [rng.standard_normal((4, 8)).astype(np.float32) for _ in range(3000)]
    with ThreadPoolExecutor(1) as threads:
        disturbing = threads.submit(disturb)
        for number, outputs in enumerate(model.map(({"x": x} for x in given), 64)):
            np.testing.assert_array_equal(outputs["y"], np.maximum(given[number], 0))
        stop.set()
        assert disturbing.result(BOUND_S) > 0
    killed: list[int] = []
    for number, outputs in enumerate(model.map(({"x": x} for x in given), 64)):
        np.testing.assert_array_equal(outputs["y"], np.maximum(given[number], 0))
        if number in (500, 1500):
            killed.append(workers_of(own_pool, killed)[0])
            os.kill(killed[-1], signal.SIGKILL)
    assert own_pool.stats()["workers_lost"] == 2


def test_a_slow_source_has_each_run_begin_at_once(pool: poolrt.Pool) -> None:
    """No run waits unbegun in a batch while the source of inputs does."""
    model = load(pool)

    def count() -> int:
        return sum(ring._ring.done for ring in rings_of(pool))

    before = count()

    def source() -> Iterator[dict[str, Any]]:
        for number in range(30):
            yield {"x": X}
            wait_until(lambda number=number: count() == before + number + 1, "the run was executed")  # type: ignore[misc]

    assert len(list(model.map(source(), 64))) == 30


@pytest.mark.parametrize("count", [3, 21, 40, 61])
def test_runs_begin_soon_though_the_source_of_inputs_blocks(pool: poolrt.Pool, count: int) -> None:
    """After some that follow one another quickly, which are given to workers in batches."""
    model = load(pool)

    def done() -> int:
        return sum(ring._ring.done for ring in rings_of(pool))

    def source() -> Iterator[dict[str, Any]]:
        for _ in range(5):
            before = done()
            for _ in range(count):
                yield {"x": X}
            wait_until(lambda before=before: done() == before + count, "all were executed")  # type: ignore[misc]

    assert len(list(model.map(source(), 64))) == 5 * count


def test_batches_grow_with_what_is_in_flight_and_leave_some_for_each_worker(pool: poolrt.Pool) -> None:
    model = load(pool)
    for limit, expected in ((1, 1), (8, 2), (32, 16), (48, 24), (64, 32), (300, 32)):
        mapped = _MappedRuns(model, limit, None)
        assert mapped.put({"x": X}, mapped, model._loaded) > 0
        places = mapped.places
        assert places is not None
        assert mapped._next_batch(places) == expected
        mapped.cancel()


def test_a_map_that_finds_all_rings_full_has_fewer_runs_in_flight(pool: poolrt.Pool) -> None:
    model = load(pool)
    mapped = _MappedRuns(model, 1000, None)
    while mapped.begin({"x": X}):
        assert mapped.count < 1000
    assert mapped.limit == max(CAPACITY, mapped.count)
    while mapped.count:
        np.testing.assert_array_equal(mapped.finish()["y"], np.maximum(X, 0))
    inputs = np.random.default_rng().standard_normal((1000, *X.shape)).astype(np.float32)
    found = [outputs["y"] for outputs in model.map(({"x": each} for each in inputs), 1000)]
    np.testing.assert_array_equal(found, np.maximum(inputs, 0))


def test_places_grow_with_what_is_in_flight_and_are_bounded(pool: poolrt.Pool) -> None:
    model = load(pool)
    assert all(places.count <= 4 for places in places_of(model))
    futures = [model.submit(x=X) for _ in range(60)]
    assert max(places.count for places in places_of(model)) > 4
    for future in futures:
        np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(X, 0))
    graph = poolrt.Graph("relu")
    graph.output("y", graph.eltwise(graph.input("x", (LARGEST // 4,)), "relu"))
    large = np.random.default_rng().standard_normal(LARGEST // 4).astype(np.float32)
    model = load(pool, graph, x=large)
    for outputs in model.map(({"x": large} for _ in range(300)), 64):
        np.testing.assert_array_equal(outputs["y"], np.maximum(large, 0))
    assert all(places.count <= 4 for places in places_of(model))


def test_futures_in_prepared_places_are_right_in_any_order_and_when_they_are_dropped(pool: poolrt.Pool) -> None:
    model = load(pool)
    rng = np.random.default_rng()
    before = sum(ring._ring.done for ring in rings_of(pool))
    kept: list[tuple[Any, Any]] = []
    for number in range(600):
        x = rng.standard_normal((4, 8)).astype(np.float32)
        future = model.submit(x=x)
        x = x.copy()
        if number % 3:
            kept.insert(int(rng.integers(len(kept) + 1)), (x, future))
        if len(kept) > 40:
            x, future = kept.pop()
            np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(x, 0))
    for x, future in kept:
        np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(x, 0))
    assert sum(ring._ring.done for ring in rings_of(pool)) >= before + 400
    prepared = model._loaded.prepared
    assert prepared is not None


def test_threads_share_the_places_of_a_ring(own_pool: poolrt.Pool) -> None:
    """Runs, maps and futures at once, more than there are places."""
    model = load(own_pool)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        given = [rng.standard_normal((4, 8)).astype(np.float32) for _ in range(200)]
        if seed % 3 == 0:
            found = [model.run(x=x)["y"] for x in given]
        elif seed % 3 == 1:
            found = [outputs["y"] for outputs in model.map(({"x": x} for x in given), 64)]
        else:
            futures = [model.submit(x=x) for x in given]
            found = [future.result(BOUND_S)["y"] for future in futures]
        for x, y in zip(given, found, strict=True):
            np.testing.assert_array_equal(y, np.maximum(x, 0))

    with ThreadPoolExecutor(6) as threads:
        for each in [threads.submit(work, seed) for seed in range(12)]:
            each.result(3 * BOUND_S)


def test_a_future_in_a_prepared_place_whose_run_fails_or_is_interrupted_says_so(
    crashing: poolrt.Graph, settings: dict[str, Any]
) -> None:
    create(settings["home"], crashing)
    with poolrt.Pool(workers=1, threads=1, retries=1, **settings) as pool:
        model = load(pool, crashing, 1, x=np.full(1, 0.5, np.float32))
        values = [0.5, 2, 0.25, 2, 0.125]
        futures = [model.submit(x=np.full(1, value, np.float32)) for value in values]
        for value, future in zip(values, futures, strict=True):
            if value > 1:
                assert isinstance(future.exception(BOUND_S), RunFailed)
            else:
                assert future.result(BOUND_S)["y"][0] == value
        assert isinstance(model.submit(x=np.full(1, -1, np.float32)).exception(BOUND_S), WorkerLost)
        assert model.submit(x=np.full(1, 0.5, np.float32)).result(BOUND_S)["y"][0] == 0.5
