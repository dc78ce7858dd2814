"""Runs on real worker processes: results, memory, order, wrong inputs."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import as_completed
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import PoolClosed
from poolrt.memory.arena import slot_size

from .created import create
from .processes import BOUND_S, relu_graph, wait_until, workers_of


@pytest.fixture(scope="module")
def model(pool: poolrt.Pool) -> poolrt.Model:
    return pool.load(relu_graph())


def _used(pool: poolrt.Pool) -> int:
    pool._session.client.flush()  # what was released a moment ago is no longer used
    used: int = pool.stats()["arena"]["used"]
    return used


def _batches(count: int) -> Iterator[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(1)
    for _ in range(count):
        yield generator.standard_normal((4, 8)).astype(np.float32)


def test_a_run_gives_the_outputs_by_name(model: poolrt.Model) -> None:
    for x in _batches(5):
        outputs = model.run(x=x)
        assert list(outputs) == ["y"]
        np.testing.assert_array_equal(outputs["y"], np.maximum(x, 0))
        assert outputs["y"].dtype == np.float32


def test_a_model_says_what_it_takes_and_gives(model: poolrt.Model) -> None:
    (spec,) = model.inputs
    assert (spec.name, spec.shape, spec.dtype, spec.nbytes) == ("x", (4, 8), "float32", 128)
    assert [spec.name for spec in model.outputs] == ["y"]
    assert "relu (x: float32[4, 8]) -> (y: float32[4, 8])" in repr(model)


def test_outputs_stay_as_they_are_while_later_runs_go_on(model: poolrt.Model) -> None:
    inputs = list(_batches(20))
    outputs = [model.run(x=x)["y"] for x in inputs]
    for x, y in zip(inputs, outputs, strict=True):
        np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_an_array_made_by_the_pool_and_a_large_output_are_inputs_without_a_copy(pool: poolrt.Pool) -> None:
    """Small outputs are copied: see `test_prepared_runs`."""
    shape = 4, 1025
    model = pool.load(relu_graph(shape))
    x = pool.empty(shape)
    x[:] = -1.0
    x[0] = 2.0
    memory = pool._session.memory
    assert memory.offset_of(x) is not None
    first = model.run(x=x)["y"]
    assert memory.offset_of(first) is not None
    np.testing.assert_array_equal(model.run(x=first)["y"], np.maximum(x, 0))
    # A view that does not begin at its slot, or is not row-major, is copied and gives the same.
    for view in (pool.empty((5, 1025))[1:], np.asfortranarray(x), pool.empty((1025, 4)).T):
        view[...] = x
        np.testing.assert_array_equal(model.run(x=view)["y"], np.maximum(x, 0))


def test_memory_is_given_back_when_an_array_and_all_its_views_are_gone(pool: poolrt.Pool) -> None:
    shape = 4, 1025
    model = pool.load(relu_graph(shape))
    x = np.ones(shape, np.float32)
    for _ in range(20):
        model.run(x=x)  # by messages, then on rings, which keep slots
    gc.collect()
    before = _used(pool)
    held = [model.run(x=x)["y"] for _ in range(40)]
    views = [y[1:3].T for y in held]
    del held
    gc.collect()
    # The views keep their slots, but for those that were kept before.
    assert _used(pool) >= before + 30 * x.nbytes
    assert all((view == 1).all() for view in views)
    views.clear()
    gc.collect()
    # Some slots are kept for later outputs.
    assert _used(pool) <= before + 8 * 2 * x.nbytes


def test_thousands_of_runs_leave_no_memory_behind(pool: poolrt.Pool, model: poolrt.Model) -> None:
    x = np.ones((4, 8), np.float32)
    model.run(x=x)
    before = _used(pool)
    for _ in range(2000):
        model.run(x=x)
    # Prepared places may have been made meanwhile, four on each ring, in one slot.
    assert _used(pool) in (before, before + slot_size(4 * 256), before + 2 * slot_size(4 * 256))


def test_futures_resolve_in_any_order_of_waiting(model: poolrt.Model) -> None:
    inputs = list(_batches(50))
    futures = [model.submit(x=x) for x in inputs]
    for x, future in reversed(list(zip(inputs, futures, strict=True))):
        np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(x, 0))
    assert len(list(as_completed([model.submit(x=x) for x in inputs], timeout=BOUND_S))) == 50


def test_the_memory_of_a_future_that_was_dropped_is_given_back(pool: poolrt.Pool, settings: dict[str, Any]) -> None:
    graph = relu_graph((512, 512), name="large")
    create(settings["home"], graph)
    model = pool.load(graph)
    x = np.ones((512, 512), np.float32)
    model.run(x=x)
    before = _used(pool)
    for _ in range(3):
        assert model.submit(x=x).result(BOUND_S)["y"].sum() == x.size
    wait_until(lambda: _used(pool) <= before, "the outputs are given back")


def test_a_thousand_submitted_runs_are_all_right(model: poolrt.Model) -> None:
    inputs = list(_batches(1000))
    futures = [model.submit(x=x) for x in inputs]
    for x, future in zip(inputs, futures, strict=True):
        np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(x, 0))


def test_a_callback_may_submit_another_run(model: poolrt.Model) -> None:
    done = threading.Event()
    left = 30

    def again(_: object) -> None:
        nonlocal left
        left -= 1
        if left:
            model.submit(x=np.ones((4, 8), np.float32)).add_done_callback(again)
        else:
            done.set()

    model.submit(x=np.ones((4, 8), np.float32)).add_done_callback(again)
    assert done.wait(BOUND_S)


def test_map_keeps_the_order_and_takes_only_a_few_batches_in_advance(model: poolrt.Model) -> None:
    taken = 0

    def batches() -> Iterator[dict[str, Any]]:
        nonlocal taken
        while True:  # endless
            taken += 1
            yield {"x": np.full((4, 8), taken, np.float32)}

    results = model.map(batches(), in_flight=4)
    for number in range(1, 31):
        assert (next(results)["y"] == number).all()
        assert taken <= number + 4
    results.close()  # type: ignore[attr-defined]


def test_map_of_nothing_is_nothing(model: poolrt.Model) -> None:
    assert list(model.map([])) == []
    with pytest.raises(ValueError, match="in_flight"):
        next(model.map([], in_flight=0))


def test_many_threads_may_run_at_once(pool: poolrt.Pool, model: poolrt.Model) -> None:
    wrong: list[str] = []

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for number in range(60):
            x = generator.standard_normal((4, 8)).astype(np.float32)
            if number % 3:
                y = model.run(x=x)["y"]
            else:
                y = model.submit(x=x).result(BOUND_S)["y"]
            if not np.array_equal(y, np.maximum(x, 0)):
                wrong.append(f"{seed}/{number}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
        assert not thread.is_alive()
    assert not wrong


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({}, ValueError, r"takes the inputs x float32\[4, 8\]; given: none"),
        ({"z": 1}, ValueError, r"takes the inputs x float32\[4, 8\]; given: z"),
        ({"x": np.zeros((4, 8), np.float32), "z": 1}, ValueError, "given: x, z"),
        ({"x": np.zeros((4, 8))}, TypeError, "input x of model relu must be of dtype float32, got float64"),
        ({"x": np.zeros((8, 4), np.float32)}, ValueError, r"must be of shape \(4, 8\), got \(8, 4\)"),
        ({"x": np.zeros(32, np.float32)}, ValueError, r"must be of shape \(4, 8\), got \(32,\)"),
    ],
)
def test_wrong_inputs_are_refused_saying_what_is_expected(
    model: poolrt.Model, inputs: dict[str, Any], error: type[Exception], message: str
) -> None:
    for attempt in (model.run, model.submit):
        with pytest.raises(error, match=message):
            attempt(**inputs)


def test_lists_of_numbers_are_inputs_too(model: poolrt.Model) -> None:
    np.testing.assert_array_equal(model.run(x=[[-1.0] * 8, [1.0] * 8] * 2)["y"][:, 0], [0, 1, 0, 1])


def test_empty_checks_its_arguments(pool: poolrt.Pool) -> None:
    assert pool.empty(3, np.int64).shape == (3,)
    assert pool.empty((0, 5)).shape == (0, 5)
    with pytest.raises(ValueError, match="negative"):
        pool.empty((2, -1))
    with pytest.raises(TypeError, match="Python objects"):
        pool.empty(3, object)


def test_a_closed_model_runs_no_more_and_its_memory_is_free(pool: poolrt.Pool, settings: dict[str, Any]) -> None:
    before = _used(pool)
    graph = poolrt.Graph("sum")
    x = graph.input("x", (1000,), "float32")
    graph.output("y", graph.binary(x, np.ones(1000, np.float32), "add"))
    create(settings["home"], graph)
    model = pool.load(graph)
    assert (model.run(x=np.ones(1000, np.float32))["y"] == 2).all()
    assert _used(pool) > before
    model.close()
    with pytest.raises(PoolClosed, match="closed"):
        model.run(x=np.ones(1000, np.float32))
    gc.collect()
    assert _used(pool) <= before + 8 * 1024  # what is kept for later inputs of this size


def test_statistics_tell_of_workers_queue_arena_and_cache(pool: poolrt.Pool, model: poolrt.Model) -> None:
    model.run(x=np.ones((4, 8), np.float32))
    workers_of(pool)  # all of them are up
    wait_until(lambda: not pool.stats()["queue"]["creating"], "the ends of rings are created", 60)
    stats = pool.stats()
    assert len(stats["workers"]) == pool.workers == 2
    for worker in stats["workers"]:
        assert worker["pid"] > 0
        assert worker["state"] in ("idle", "busy", "starting")
        assert worker["rss_bytes"] > 1_000_000
        assert worker["numba_imported"] is False
    assert sum(worker["runs"] for worker in stats["workers"]) > 0
    assert stats["queue"] == {"waiting": 0, "in_flight": 0, "creating": 0}
    assert stats["arena"]["bytes"] == 64 * 1024 * 1024
    assert "creations" in stats["cache"]


def test_an_output_has_as_many_elements_as_the_run_counted(pool: poolrt.Pool) -> None:
    graph = poolrt.Graph("counted")
    boxes, scores = graph.input("boxes", (1, 6, 4)), graph.input("scores", (1, 2, 6))
    rows, count = graph.non_max_suppression(boxes, scores, [6.0, 0.5, 0.0])
    graph.output("rows", rows, count)
    graph.output("columns", graph.transpose(rows, (1, 0)), count, axis=-1)
    model = pool.load(graph)
    assert [(spec.name, spec.shape) for spec in model.outputs] == [("rows", (12, 3)), ("columns", (3, 12))]
    # Boxes of 2 x 2, side by side
    edges = np.array([[0, 2 * place, 2, 2 * place + 2] for place in range(6)], np.float32)[None]
    for used in (5, 0, 12):
        given = np.where(np.arange(12) < used, np.arange(12, 0, -1), -1).astype(np.float32).reshape(1, 2, 6)
        found = model.submit(boxes=edges, scores=given).result(BOUND_S)
        assert list(found) == ["rows", "columns"]
        wanted = [(0, place // 6, place % 6) for place in range(used)]
        np.testing.assert_array_equal(found["rows"], np.array(wanted, np.int64).reshape(-1, 3))
        np.testing.assert_array_equal(found["columns"], found["rows"].T)
