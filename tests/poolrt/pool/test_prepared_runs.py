"""Runs whose slots and entries are prepared: as right as the others when inputs are unusual and processes pause or exit."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.client_ring import ClientRing
from poolrt.errors import PoolClosed, RunFailed, WorkerLost
from poolrt.prepared_run import PreparedRun
from poolrt.prepared_runs import LARGEST

from .created import create
from .processes import BOUND_S, relu_graph, wait_until

_X = np.arange(-16, 16, dtype=np.float32).reshape(4, 8)


def _rings(pool: poolrt.Pool) -> list[ClientRing]:
    return [*pool._session.link.client.rings._rings.values()]


def _prepared(model: poolrt.Model) -> list[PreparedRun]:
    """Return the prepared runs of a model that are not in use."""
    prepared = model._loaded.prepared
    return [] if prepared is None else [*prepared.free]


def crashes(x: Any, y: Any) -> None:
    """Write far beyond the output if the input is negative."""
    y[0] = x[0]
    if x[0] < 0:
        y[1 << 44] = 1
    if x[0] > 1:
        raise ValueError("large")


@pytest.fixture(scope="module")
def crashing() -> poolrt.Graph:
    graph = poolrt.Graph("fragile")
    kernel = poolrt.NativeKernel.compile(crashes, "void(f4[::1], f4[::1])")
    graph.output("y", graph.call(kernel, [graph.input("x", (1,))], [((1,), "float32")], name="mine"))
    return graph


def _load(pool: poolrt.Pool, graph: poolrt.Graph | None = None, workers: int = 2, **inputs: Any) -> poolrt.Model:
    """Return a model whose runs are prepared on all workers."""
    model = pool.load(relu_graph() if graph is None else graph, progress=False)
    inputs = inputs or {"x": _X}

    def is_prepared() -> bool:
        model.run(**inputs)
        rings = _rings(pool)
        ready = [ring._end is not None and model._loaded.number in ring.models for ring in rings]
        return ready == [True] * workers and len(_prepared(model)) > 0

    wait_until(is_prepared, "runs are prepared")
    return model


@pytest.fixture
def own_pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        yield pool


@pytest.fixture(scope="module")
def pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        yield pool


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
        model = _load(pool, graph, a=draw(), b=draw())
        kept = []
        for _ in range(40):
            x, y = draw(), draw()
            kept.append((x, y, model.run(a=x, b=y)))
        assert len(_prepared(model)) > 0
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
    model = _load(pool)
    expected = np.maximum(_X, 0)
    shared = pool.empty((4, 8), "float32")
    shared[...] = _X
    accepted: list[Any] = [
        _X.tolist(),
        _X[:, ::-1][:, ::-1],
        np.asfortranarray(_X),
        shared,
        _X.view(_Array),
        _X.astype(">f4"),
        np.tile(_X, 2)[:, :8],
    ]
    for x in accepted:
        np.testing.assert_array_equal(model.run(x=x)["y"], expected)
    refused: list[tuple[Any, type[Exception]]] = [
        (_X.astype(np.float64), TypeError),
        (_X[:3], ValueError),
        (None, TypeError),
    ]
    for wrong, error in refused:
        with pytest.raises(error, match="input x"):
            model.run(x=wrong)
    for inputs in ({}, {"z": _X}, {"x": _X, "z": _X}):
        with pytest.raises(ValueError, match="takes the inputs x"):
            model.run(**inputs)
    with pytest.raises(TypeError, match="by name"):
        model.run(_X)  # type: ignore[arg-type]
    np.testing.assert_array_equal(model.run(x=_X, timeout=BOUND_S)["y"], expected)


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
            model.run(x=_X)
        raise AssertionError("no message was read")

    count_until(lambda: len(_rings(own_pool)) == 2 and all(ring._end is not None for ring in _rings(own_pool)))
    count_until(lambda: len(_prepared(model)) > 0)
    first = {ring.number for ring in _rings(own_pool)}
    idle = max(_rings(own_pool), key=lambda ring: ring.number)
    pids = [worker["pid"] for worker in own_pool.stats()["workers"]]
    os.kill(pids[-1], signal.SIGKILL)
    count_until(lambda: {ring.number for ring in _rings(own_pool)} != first)
    count_until(lambda: len(_rings(own_pool)) == 2)
    assert client.lost is None
    assert idle.number in first


def test_a_prepared_run_whose_worker_is_killed_is_done_by_another(own_pool: poolrt.Pool) -> None:
    model = _load(own_pool)
    pids = [worker["pid"] for worker in own_pool.stats()["workers"]]
    before = sum(ring._ring.submitted for ring in _rings(own_pool))
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(lambda: model.run(x=_X)["y"])
        wait_until(lambda: sum(ring._ring.submitted for ring in _rings(own_pool)) > before, "the run is submitted")
        (entry,) = [entry for ring in _rings(own_pool) for entry in ring.under_way]
        assert isinstance(entry, PreparedRun)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        np.testing.assert_array_equal(future.result(BOUND_S), np.maximum(_X, 0))
    wait_until(lambda: own_pool.stats()["workers_lost"] == 2, "both are replaced")
    model.close()
    del entry
    _load(own_pool)


def test_a_prepared_run_that_fails_or_kills_its_worker_says_so_and_is_repeated_as_often_as_the_setting_says(
    crashing: poolrt.Graph, settings: dict[str, Any]
) -> None:
    create(settings["home"], crashing)
    with poolrt.Pool(workers=1, threads=1, retries=2, **settings) as pool:
        model = _load(pool, crashing, 1, x=np.full(1, 0.5, np.float32))
        for _ in range(3):
            with pytest.raises(RunFailed, match=r"ValueError: large$"):
                model.run(x=np.full(1, 2, np.float32))
            assert model.run(x=np.full(1, 0.25, np.float32))["y"][0] == 0.25
        with pytest.raises(WorkerLost) as caught:
            model.run(x=np.full(1, -1, np.float32))
        assert caught.value.attempts == 3
        assert pool.stats()["workers_lost"] == 3
        assert model.run(x=np.full(1, 0.5, np.float32))["y"][0] == 0.5


def test_a_prepared_run_beside_a_function_is_done(own_pool: poolrt.Pool, tmp_path: Path) -> None:
    """The workers pause their rings, and return what they find there."""
    model = _load(own_pool)
    stop = threading.Event()

    def run() -> int:
        count = 0
        while not stop.is_set():
            np.testing.assert_array_equal(model.run(x=_X)["y"], np.maximum(_X, 0))
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
    other = _load(own_pool)
    for _ in range(5):
        model = _load(own_pool)

        def run(model: poolrt.Model = model) -> None:
            while True:
                np.testing.assert_array_equal(model.run(x=_X)["y"], np.maximum(_X, 0))

        with ThreadPoolExecutor(4) as threads:
            runs = [threads.submit(run) for _ in range(4)]
            time.sleep(0.05)
            model.close()
            for each in runs:
                assert isinstance(each.exception(BOUND_S), PoolClosed)
        np.testing.assert_array_equal(other.run(x=_X)["y"], np.maximum(_X, 0))


def test_the_slots_of_prepared_runs_are_released_with_the_model_and_when_memory_is_short(
    settings: dict[str, Any],
) -> None:
    with poolrt.Pool(workers=2, threads=1, **{**settings, "arena_bytes": 1 << 20}) as pool:
        used = []
        for _ in range(4):
            model = _load(pool)
            _ = [model.run(x=_X) for _ in range(20)]
            del model
            gc.collect()
            used.append(pool.stats()["arena"]["used"])
        assert used[-1] <= used[0]
        model = _load(pool)
        assert _prepared(model)
        rooms = [pool.empty((1 << 16,), "uint8")]
        with pytest.raises(poolrt.errors.ArenaFull):
            while True:
                rooms.append(pool.empty((256,), "uint8"))
        assert not _prepared(model)
        rooms.clear()
        np.testing.assert_array_equal(model.run(x=_X)["y"], np.maximum(_X, 0))


def test_a_forked_process_runs_on_a_connection_of_its_own(own_pool: poolrt.Pool) -> None:
    model = _load(own_pool)
    pid = os.fork()
    if pid == 0:
        try:
            for _ in range(10):
                np.testing.assert_array_equal(model.run(x=_X)["y"], np.maximum(_X, 0))
            os._exit(0)
        finally:
            os._exit(1)
    for _ in range(10):
        np.testing.assert_array_equal(model.run(x=_X)["y"], np.maximum(_X, 0))
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("in_flight", [1, 2, 8, 64, 300])
def test_map_yields_all_outputs_in_order_for_usual_and_unusual_inputs(pool: poolrt.Pool, in_flight: int) -> None:
    model = _load(pool)
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
    model = _load(pool)
    read = 0

    def endless() -> Iterator[dict[str, Any]]:
        nonlocal read
        while True:
            read += 1
            yield {"x": _X}

    for limit in (1, 5, 64):
        read = 0
        mapped = model.map(endless(), limit)
        for number in range(200):
            np.testing.assert_array_equal(next(mapped)["y"], np.maximum(_X, 0))
            assert read <= number + 1 + limit
        mapped.close()  # type: ignore[attr-defined]
        np.testing.assert_array_equal(model.run(x=_X)["y"], np.maximum(_X, 0))
        wait_until(lambda: not any(map(len, _rings(pool))) or _look(pool), "nothing is under way")


def _look(pool: poolrt.Pool) -> bool:
    for ring in _rings(pool):
        ring.look()
    return not any(map(len, _rings(pool)))


def test_map_raises_the_error_of_a_run_in_its_turn(crashing: poolrt.Graph, settings: dict[str, Any]) -> None:
    create(settings["home"], crashing)
    with poolrt.Pool(workers=1, threads=1, retries=1, **settings) as pool:
        model = _load(pool, crashing, 1, x=np.full(1, 0.5, np.float32))
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
    model = _load(own_pool)
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
    for number, outputs in enumerate(model.map(({"x": x} for x in given), 64)):
        np.testing.assert_array_equal(outputs["y"], np.maximum(given[number], 0))
        if number in (500, 1500):
            os.kill(own_pool.stats()["workers"][0]["pid"], signal.SIGKILL)
    assert own_pool.stats()["workers_lost"] == 2


def test_a_slow_source_has_each_run_begin_at_once(pool: poolrt.Pool) -> None:
    """No run waits unbegun in a batch while the source of inputs does."""
    model = _load(pool)

    def count() -> int:
        return sum(ring._ring.done for ring in _rings(pool))

    before = count()

    def source() -> Iterator[dict[str, Any]]:
        for number in range(30):
            yield {"x": _X}
            wait_until(lambda number=number: count() == before + number + 1, "the run was executed")  # type: ignore[misc]

    assert len(list(model.map(source(), 64))) == 30
