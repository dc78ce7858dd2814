"""Runs whose slots and entries are prepared: as right as the others when inputs are unusual and processes pause or exit."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import PoolClosed, RunFailed, WorkerLost
from poolrt.runs import client_ring
from poolrt.runs.client_ring import ClientRing
from poolrt.runs.placed_runs import PlacedRun, PlacedRuns
from poolrt.runs.prepared_runs import LARGEST
from poolrt.workers.ipc.protocol import Kind

from .created import create
from .prepared import X, crashing_graph, load, places_of, rings_of
from .processes import BOUND_S, relu_graph, wait_until, workers_of


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


@pytest.mark.parametrize("kind", [Kind.RING_MODEL, Kind.RING_FIRST], ids=["model", "order"])
def test_runs_move_to_the_ring_that_is_first_now(pool: poolrt.Pool, kind: Kind) -> None:
    model = load(pool)
    client, number = pool._session.link.client, model._loaded.number
    first, second = rings_of(pool)
    if kind is Kind.RING_MODEL:  # the first worker takes the model later than the other one
        first.models.discard(number)
        message = [kind, first.number, number]
    else:
        first, second = second, first
        message = [kind, first.number]

    def all_are_on(ring: ClientRing) -> bool:
        """Run some times; return whether one ring took all. A worker without a processor leaves its runs to the other one."""
        before = ring._ring.done
        for _ in range(8):
            model.run(x=X)
        return ring._ring.done - before == 8

    wait_until(lambda: all_are_on(second), "the other ring takes all runs")
    client.rings.accept(message, client._channel)
    wait_until(lambda: all_are_on(first), "the first ring takes all runs")


def test_outputs_are_the_callers_own_and_right_for_many_types_and_shapes(pool: poolrt.Pool) -> None:
    rng = np.random.default_rng()
    for dtype, shape in (
        ("float32", (3, 5, 7)),
        ("float32", (1,)),
        ("int32", (13,)),
        ("uint8", (31, 3)),
        ("int8", (2, 2)),
    ):
        graph = poolrt.Graph("sum")
        a, b = graph.input("a", shape, dtype), graph.input("b", shape, dtype)
        graph.output("same", graph.binary(a, b, "max"))
        graph.output("other", graph.binary(a, b, "min"))
        draw = partial(_draw, rng, shape, dtype)
        model = load(pool, graph, a=draw(), b=draw())
        kept = []
        for _ in range(40):
            x, y = draw(), draw()
            kept.append((x, y, model.run(a=x, b=y)))
        assert len(places_of(model)) > 0
        for x, y, outputs in kept:
            np.testing.assert_array_equal(outputs["same"], np.maximum(x, y))
            np.testing.assert_array_equal(outputs["other"], np.minimum(x, y))
            assert outputs["same"].dtype == dtype
            assert outputs["same"].flags.owndata
            assert outputs["same"].flags.writeable
            assert outputs["same"].flags.c_contiguous
        with pytest.raises(KeyError, match="there are: same, other"):
            kept[0][2]["z"]


def _draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    return (rng.standard_normal(shape) * 50).astype(dtype)


def test_unusual_inputs_are_converted_or_refused_as_ever(pool: poolrt.Pool) -> None:
    model = load(pool)
    expected = np.maximum(X, 0)
    shared = pool.empty((4, 8), "float32")
    shared[...] = X
    accepted: list[Any] = [
        X.tolist(),
        X[:, ::-1][:, ::-1],
        np.asfortranarray(X),
        shared,
        X.view(_Array),
        X.astype(">f4"),
        np.tile(X, 2)[:, :8],
    ]
    for x in accepted:
        np.testing.assert_array_equal(model.run(x=x)["y"], expected)
    refused: list[tuple[Any, type[Exception]]] = [
        (X.astype(np.float64), TypeError),
        (X[:3], ValueError),
        (None, TypeError),
    ]
    for wrong, error in refused:
        with pytest.raises(error, match="input x"):
            model.run(x=wrong)
    for inputs in ({}, {"z": X}, {"x": X, "z": X}):
        with pytest.raises(ValueError, match="takes the inputs x"):
            model.run(**inputs)
    with pytest.raises(TypeError, match="by name"):
        model.run(X)  # type: ignore[arg-type]
    np.testing.assert_array_equal(model.run(x=X, timeout=BOUND_S)["y"], expected)


class _Array(np.ndarray[Any, Any]):
    """An array of another class."""


def test_models_with_large_tensors_are_not_prepared(pool: poolrt.Pool) -> None:
    for count, is_prepared in ((LARGEST // 4, True), (LARGEST // 4 + 1, False)):
        graph = poolrt.Graph("relu")
        graph.output("y", graph.eltwise(graph.input("x", (count,)), "relu"))
        model = pool.load(graph, progress=False)
        assert (model._loaded.prepared is not None) == is_prepared
        x = np.random.default_rng().standard_normal(count).astype(np.float32)
        for _ in range(20):
            np.testing.assert_array_equal(model.run(x=x)["y"], np.maximum(x, 0))


def test_a_client_that_only_runs_sees_what_the_coordinator_says(own_pool: poolrt.Pool) -> None:
    """Its waits end before they would look at messages."""
    model = own_pool.load(relu_graph(), progress=False)
    client = own_pool._session.client

    def count_until(holds: Callable[[], bool]) -> None:
        for _ in range(200_000):
            if holds():
                return
            model.run(x=X)
        raise AssertionError("no message was read")

    count_until(lambda: len(rings_of(own_pool)) == 2 and all(ring.is_compiled for ring in rings_of(own_pool)))
    count_until(lambda: len(places_of(model)) > 0)
    first = {ring.number for ring in rings_of(own_pool)}
    idle = max(rings_of(own_pool), key=lambda ring: ring.number)
    pids = workers_of(own_pool)
    os.kill(pids[-1], signal.SIGKILL)
    count_until(lambda: {ring.number for ring in rings_of(own_pool)} != first)
    count_until(lambda: len(rings_of(own_pool)) == 2)
    assert client.lost is None
    assert idle.number in first


def test_a_prepared_run_whose_worker_is_killed_is_done_by_another(own_pool: poolrt.Pool) -> None:
    model = load(own_pool)
    pids = workers_of(own_pool)
    before = sum(ring._ring.submitted for ring in rings_of(own_pool))
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(lambda: model.run(x=X)["y"])
        wait_until(lambda: sum(ring._ring.submitted for ring in rings_of(own_pool)) > before, "the run is submitted")
        (entry,) = [ring.under_way[-1] for ring in rings_of(own_pool) if ring.under_way]
        assert isinstance(entry, PlacedRuns)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        np.testing.assert_array_equal(future.result(BOUND_S), np.maximum(X, 0))
    wait_until(lambda: own_pool.stats()["workers_lost"] == 2, "both are replaced")
    model.close()
    del entry
    load(own_pool)


def test_a_prepared_run_that_fails_or_kills_its_worker_says_so_and_is_repeated_as_often_as_the_setting_says(
    crashing: poolrt.Graph, settings: dict[str, Any]
) -> None:
    create(settings["home"], crashing)
    with poolrt.Pool(workers=1, threads=1, retries=2, **settings) as pool:
        model = load(pool, crashing, 1, x=np.full(1, 0.5, np.float32))
        for _ in range(3):
            with pytest.raises(RunFailed, match=r"ValueError: large$"):
                model.run(x=np.full(1, 2, np.float32))
            assert model.run(x=np.full(1, 0.25, np.float32))["y"][0] == 0.25
        with pytest.raises(WorkerLost) as caught:
            model.run(x=np.full(1, -1, np.float32))
        assert caught.value.attempts == 3
        assert pool.stats()["workers_lost"] == 3
        assert model.run(x=np.full(1, 0.5, np.float32))["y"][0] == 0.5


def test_outputs_that_are_taken_again_leave_the_place_to_another_run(pool: poolrt.Pool) -> None:
    # Given a run of a future whose outputs were taken, and the next run in its place
    model = load(pool)
    places = places_of(model)[0]

    def put(run: PlacedRun, x: Any) -> None:
        run.sequence = places.put({"x": x}, run, model._loaded)
        places.ring.wake()
        wait_until(lambda: run.ended, "the run has ended")

    run, found = PlacedRun(), list[Any]()
    put(run, X)
    run.take(found)
    others = [PlacedRun() for _ in range(places.count)]
    for number, other in enumerate(others):
        put(other, X + number)
    # When an interrupt has kept that from being noted, so that they are taken again
    run.take(found)
    # Then the other run still has its place
    assert [places.owner_of(other.sequence) for other in others] == others
    for number, other in enumerate(others):
        other.take(later := list[Any]())
        np.testing.assert_array_equal(later[0][0]["y"], np.maximum(X + number, 0))


def test_a_thread_that_follows_another_one_which_leaves_at_that_moment_leads(
    own_pool: poolrt.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given workers that are stopped, and a thread that leads on each ring until another one follows it
    model = load(own_pool)
    pids, rings = workers_of(own_pool), rings_of(own_pool)
    monkeypatch.setattr(client_ring, "_FOLLOW_S", 2 * BOUND_S)
    followed = threading.Event()

    class Followers(deque[Any]):
        def append(self, follower: Any) -> None:
            super().append(follower)
            for each in rings:
                each.leading = False
            followed.set()

    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for ring in rings:
        ring.followers, ring.leading = Followers(), True
    # When a thread waits for a run
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(lambda: model.run(x=X)["y"])
        assert followed.wait(BOUND_S)
        # Then it does not wait for the one that has left
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        np.testing.assert_array_equal(future.result(BOUND_S), np.maximum(X, 0))
    assert not any(ring.leading or ring.followers for ring in rings)


def test_a_prepared_run_beside_a_function_is_done(own_pool: poolrt.Pool, tmp_path: Path) -> None:
    """The workers pause their rings, and return what they find there."""
    model = load(own_pool)
    stop = threading.Event()

    def run() -> int:
        count = 0
        while not stop.is_set():
            np.testing.assert_array_equal(model.run(x=X)["y"], np.maximum(X, 0))
            count += 1
        return count

    with ThreadPoolExecutor(3) as threads:
        runs = [threads.submit(run) for _ in range(3)]
        for number in range(150):
            assert own_pool.submit(pow, number, 2).result(BOUND_S) == number**2
        stop.set()
        assert all(each.result(BOUND_S) > 0 for each in runs)


def test_closing_a_model_waits_for_its_prepared_runs(own_pool: poolrt.Pool) -> None:
    """Its worker would find a run of a model that it does not have, and end the connection."""
    other = load(own_pool)
    for _ in range(5):
        model = load(own_pool)

        def run(model: poolrt.Model = model) -> None:
            while True:
                np.testing.assert_array_equal(model.run(x=X)["y"], np.maximum(X, 0))

        with ThreadPoolExecutor(4) as threads:
            runs = [threads.submit(run) for _ in range(4)]
            time.sleep(0.05)
            model.close()
            for each in runs:
                assert isinstance(each.exception(BOUND_S), PoolClosed)
        np.testing.assert_array_equal(other.run(x=X)["y"], np.maximum(X, 0))


def test_the_slots_of_prepared_runs_are_released_with_the_model_and_when_memory_is_short(
    settings: dict[str, Any],
) -> None:
    with poolrt.Pool(workers=2, threads=1, **{**settings, "arena_bytes": 1 << 20}) as pool:
        used = []
        for _ in range(4):
            model = load(pool)
            _ = [model.run(x=X) for _ in range(20)]
            del model
            gc.collect()
            used.append(pool.stats()["arena"]["used"])
        assert used[-1] <= used[0]
        model = load(pool)
        assert places_of(model)
        rooms = [pool.empty((1 << 16,), "uint8")]
        with pytest.raises(poolrt.errors.ArenaFull):
            while True:
                rooms.append(pool.empty((256,), "uint8"))
        assert not places_of(model)
        rooms.clear()
        np.testing.assert_array_equal(model.run(x=X)["y"], np.maximum(X, 0))


def test_a_forked_process_runs_on_a_connection_of_its_own(own_pool: poolrt.Pool) -> None:
    model = load(own_pool)
    pid = os.fork()
    if pid == 0:
        try:
            for _ in range(10):
                np.testing.assert_array_equal(model.run(x=X)["y"], np.maximum(X, 0))
            os._exit(0)
        finally:
            os._exit(1)
    for _ in range(10):
        np.testing.assert_array_equal(model.run(x=X)["y"], np.maximum(X, 0))
    assert os.waitpid(pid, 0)[1] == 0
