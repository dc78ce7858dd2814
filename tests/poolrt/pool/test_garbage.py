"""No result waits for Python's collector: memory of the arena is free again once a program refers to it no more.

The collector runs after so many new objects, and knows nothing of the arena, so a cycle of some objects could keep all of it.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

import poolrt
import poolrt.onnx as ort
from poolrt.connection.client import Client
from poolrt.errors import ArenaFull
from poolrt.memory import shared_memory
from tests.poolrt.onnx import staged_models

from .prepared import crashing_graph, load, rings_of
from .processes import BOUND_S, relu_graph, stopped, wait_until, workers_of

_MANY = 12


@contextmanager
def uncollected(pool: poolrt.Pool) -> Iterator[None]:
    """Do without the collector in a block; fail if it leaves arrays in the arena, or objects of poolrt in cycles."""
    memory: Any = pool._session.memory
    gc.collect()
    held = len(memory._in_use)
    gc.disable()
    try:
        yield

        def are_gone() -> bool:
            _end_dropped(pool)
            return len(memory._in_use) <= held

        wait_until(are_gone, "the arrays of the arena are gone")
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        assert _without_other_connections(gc.garbage, pool._session.client) == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _without_other_connections(garbage: list[Any], own: Client) -> list[Any]:
    """Return the objects of poolrt without those of earlier connections, whose threads end some time after these are closed.

    An object belongs to such a connection if references lead from one to the other, in either direction.
    """
    places = {id(each): place for place, each in enumerate(garbage)}
    neighbours: list[list[int]] = [[] for _ in garbage]
    for place, each in enumerate(garbage):
        for other in gc.get_referents(each):
            found = places.get(id(other))
            if found is not None:
                neighbours[place].append(found)
                neighbours[found].append(place)
    left = [place for place, each in enumerate(garbage) if isinstance(each, Client) and each is not own]
    others = set(left)
    while left:
        new = [place for place in neighbours[left.pop()] if place not in others]
        others.update(new)
        left += new
    return [
        each
        for place, each in enumerate(garbage)
        if place not in others and (type(each).__module__.startswith("poolrt") or isinstance(each, Future))
    ]


def _end_dropped(pool: poolrt.Pool) -> None:
    """End the runs and calls that a program has dropped, as the next ones do."""
    pool._session.open_futures.resolve_ended()
    pool._session.client.abandoned.cancel()
    pool._session.client.calls.collect()
    for ring in rings_of(pool):
        ring.look()


Submit = Callable[[], "Future[Any]"]


def _results(submit: Submit) -> None:
    for future in [submit() for _ in range(_MANY)]:
        future.result(BOUND_S)


def _exceptions(submit: Submit) -> None:
    for future in [submit() for _ in range(_MANY)]:
        future.exception(BOUND_S)


def _dropped(submit: Submit) -> None:
    for _ in range(_MANY):
        submit()


def _waited_for(submit: Submit) -> None:
    wait([submit() for _ in range(_MANY)], BOUND_S)


def _as_completed(submit: Submit) -> None:
    for future in as_completed([submit() for _ in range(_MANY)], BOUND_S):
        future.result()


def _asked(submit: Submit) -> None:
    futures = [submit() for _ in range(_MANY)]
    wait_until(lambda: all(future.done() for future in futures), "all are done")


def _called_back(submit: Submit) -> None:
    called: list[Any] = []
    for _ in range(_MANY):
        submit().add_done_callback(called.append)  # a cycle: list, future, callback
    wait_until(lambda: len(called) == _MANY, "all are done")


def _called_back_in_closures(submit: Submit) -> None:
    futures = [submit() for _ in range(_MANY)]
    called: list[Any] = []

    def note(_: Future[Any]) -> None:
        called.append(len(futures))

    for future in futures:
        future.add_done_callback(note)
    wait_until(lambda: len(called) == _MANY, "all are done")


def _cancelled(submit: Submit) -> None:
    futures = [submit() for _ in range(_MANY)]
    called: list[Any] = []
    for future in futures[::2]:
        future.add_done_callback(called.append)
    for future in reversed(futures):
        future.cancel()
    wait(futures, BOUND_S)
    wait_until(lambda: len(called) == _MANY / 2, "all are done")


def _waited_for_too_briefly(submit: Submit) -> None:
    futures = [submit() for _ in range(_MANY)]
    for future in futures:
        with suppress(TimeoutError):
            future.result(0)
    for future in futures:
        future.result(BOUND_S)


_FUTURES = [
    _results,
    _exceptions,
    _dropped,
    _waited_for,
    _as_completed,
    _asked,
    _called_back,
    _called_back_in_closures,
    _cancelled,
    _waited_for_too_briefly,
]
#: Names of the ways above, every third one in the default tests.
_SOME_FUTURES = [
    pytest.param(way.__name__[1:], marks=[pytest.mark.slow] if number % 3 else [])
    for number, way in enumerate(_FUTURES)
]


def _run(model: poolrt.Model, x: Any) -> None:
    for _ in range(_MANY):
        model.run(x=x)


def _run_in_threads(model: poolrt.Model, x: Any) -> None:
    with ThreadPoolExecutor(4) as threads:
        for _ in threads.map(lambda _: model.run(x=x), range(_MANY)):
            pass


def _run_wrongly(model: poolrt.Model, x: Any) -> None:
    for begin in (model.run, model.submit):
        with suppress(ValueError):
            begin(x=x[:1])
        with suppress(ValueError):
            begin(z=x)


def _run_in_place(model: poolrt.Model, x: Any) -> None:
    kept = [model.submit(x=model.run(x=x)["y"]) for _ in range(_MANY)]
    wait(kept, BOUND_S)


def _with_long_timeouts(model: poolrt.Model, x: Any) -> None:
    for _ in range(_MANY):
        model.run(x=x, timeout=BOUND_S)
    wait([model.submit(x=x, timeout=3600) for _ in range(_MANY)], BOUND_S)
    for _ in model.map(({"x": x} for _ in range(_MANY)), timeout=3600):
        pass


def _with_short_timeouts(model: poolrt.Model, x: Any) -> None:
    for _ in range(_MANY):
        with suppress(TimeoutError):
            model.run(x=x, timeout=0)
    for future in [model.submit(x=x, timeout=0) for _ in range(_MANY)]:
        future.exception(BOUND_S)
    with suppress(TimeoutError):
        for _ in model.map(({"x": x} for _ in range(_MANY)), timeout=0):
            pass


def _mapped(model: poolrt.Model, x: Any) -> None:
    for _ in model.map(({"x": x} for _ in range(_MANY)), in_flight=6):
        pass


def _map_left(model: poolrt.Model, x: Any) -> None:
    for _ in model.map({"x": x} for _ in range(_MANY)):
        break
    results = model.map({"x": x} for _ in range(_MANY))
    next(results)
    results.close()  # type: ignore[attr-defined]


def _map_of_errors(model: poolrt.Model, x: Any) -> None:
    with suppress(ValueError):
        for _ in model.map([*[{"x": x}] * _MANY, {"x": x[:1]}]):
            pass
    with suppress(ZeroDivisionError):
        for _ in model.map({"x": x * (1 / (_MANY - n))} for n in range(_MANY + 1)):
            pass


_RUNS = [
    _run,
    _run_in_threads,
    _run_wrongly,
    _run_in_place,
    _with_long_timeouts,
    _with_short_timeouts,
    _mapped,
    _map_left,
    _map_of_errors,
]


def _of_future(way: Callable[[Submit], None]) -> Callable[[poolrt.Model, Any], None]:
    def act(model: poolrt.Model, x: Any) -> None:
        way(lambda: model.submit(x=x))

    act.__name__ = way.__name__
    return act


_WAYS = {way.__name__[1:]: way for way in [*_RUNS, *map(_of_future, _FUTURES)]}


def _load(pool: poolrt.Pool, shape: tuple[int, ...]) -> tuple[poolrt.Model, Any]:
    """Return a model that has a ring to each worker, and an input."""
    load(pool)  # the rings' ends are compiled
    model, x = pool.load(relu_graph(shape), progress=False), np.ones(shape, np.float32)

    def is_on_rings() -> bool:
        model.run(x=x)
        return sum(model._loaded.number in ring.models for ring in rings_of(pool)) == 2

    wait_until(is_on_rings, "rings are there")
    return model, x


@pytest.mark.parametrize("shape", [(4, 8), (128, 64)], ids=["prepared", "not prepared"])
@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.one_in(3)
def test_no_run_on_a_ring_waits_for_the_collector(pool: poolrt.Pool, way: str, shape: tuple[int, ...]) -> None:
    model, x = _load(pool, shape)
    with uncollected(pool):
        _WAYS[way](model, x)


@pytest.mark.parametrize("shape", [(4, 8), (128, 64)], ids=["prepared", "not prepared"])
def test_no_model_waits_for_the_collector(pool: poolrt.Pool, shape: tuple[int, ...]) -> None:
    with uncollected(pool):
        model, x = _load(pool, shape)
        for way in _WAYS.values():
            way(model, x)
        loaded = weakref.ref(model._loaded)
        del model

        def is_gone() -> bool:
            _end_dropped(pool)
            return loaded() is None

        wait_until(is_gone, "it is unloaded")


@pytest.mark.parametrize("way", _SOME_FUTURES)
def test_no_run_by_messages_waits_for_the_collector(pool: poolrt.Pool, way: str) -> None:
    x = np.ones((128, 64), np.float32)
    # Three runs of a model go by messages before it gets rings
    models = iter([pool.load(relu_graph(x.shape), progress=False) for _ in range(_MANY)])
    with uncollected(pool):
        _WAYS[way](_Turns(models), x)  # type: ignore[arg-type]


class _Turns:
    """Each run is that of another model."""

    def __init__(self, models: Iterator[poolrt.Model]) -> None:
        self._models = models

    def submit(self, **inputs: Any) -> Future[Any]:
        return next(self._models).submit(**inputs)


@pytest.mark.parametrize("shape", [(4, 8), (128, 64)], ids=["prepared", "not prepared"])
def test_no_run_that_leaves_the_ring_of_a_stopped_worker_waits_for_the_collector(
    pool: poolrt.Pool, shape: tuple[int, ...]
) -> None:
    model, x = _load(pool, shape)
    ways = ("run", "results", "called_back", "waited_for", "mapped", "map_left", "with_long_timeouts")
    with uncollected(pool):
        for way in ways:
            for pid in workers_of(pool):
                with ThreadPoolExecutor(1) as threads, stopped(pid):
                    threads.submit(_WAYS[way], model, x).result(3 * BOUND_S)
                wait_until(lambda: not any(ring.load for ring in rings_of(pool)), "the worker returns them")


@pytest.mark.parametrize("way", ["exceptions", "dropped", "waited_for", "asked", "called_back", "cancelled"])
@pytest.mark.one_in(3)
def test_no_run_that_fails_waits_for_the_collector(pool: poolrt.Pool, way: str) -> None:
    model, x = pool.load(crashing_graph()), np.full((1,), 2, np.float32)
    with uncollected(pool):
        for _ in range(2):  # by messages, and on rings
            _WAYS[way](model, x)


@pytest.mark.parametrize("way", _SOME_FUTURES)
def test_no_split_run_waits_for_the_collector(pool: poolrt.Pool, way: str) -> None:
    model, x = pool.load(relu_graph((128, 64)), split_batch=True), np.ones((128, 64), np.float32)
    for _ in range(8):
        model.run(x=x)
    with uncollected(pool):
        _WAYS[way](model, x)
        _run(model, x)
        _map_left(model, x)
        _with_short_timeouts(model, x)


def _double(x: Any) -> Any:
    return x * 2


def _fail(x: Any) -> Any:
    raise ValueError(x)


@pytest.mark.parametrize("size", [8, 100_000])
@pytest.mark.parametrize("way", _FUTURES, ids=[way.__name__[1:] for way in _FUTURES])
@pytest.mark.one_in(3)
def test_no_result_of_a_function_waits_for_the_collector(pool: poolrt.Pool, way: Any, size: int) -> None:
    x = np.ones(size, np.float32)
    with uncollected(pool):
        for _ in range(2):  # by messages, and on rings
            way(lambda: pool.submit(_double, x))


def _map_functions(pool: poolrt.Pool, x: Any, chunksize: int) -> None:
    for _ in pool.map(_double, [x] * _MANY, chunksize=chunksize):
        pass
    for _ in pool.map(_double, [x] * _MANY, chunksize=chunksize):
        break
    with suppress(ValueError):
        for _ in pool.map(_fail, [x] * _MANY, chunksize=chunksize):
            pass


@pytest.mark.parametrize("size", [8, 100_000])
def test_no_map_and_no_error_of_functions_waits_for_the_collector(pool: poolrt.Pool, size: int) -> None:
    x = np.ones(size, np.float32)
    with uncollected(pool):
        for chunksize in (1, 4):
            _map_functions(pool, x, chunksize)
        for fn, given in ((_fail, x), (_double, threading.Lock()), (lambda x: threading.Lock(), x)):
            assert isinstance(pool.submit(fn, given).exception(BOUND_S), Exception)


@pytest.mark.parametrize("kind", ["chosen_rows", "branches"])
def test_no_run_in_stages_waits_for_the_collector(pool: poolrt.Pool, kind: str) -> None:
    source, feeds = staged_models.KINDS[kind](np.random.default_rng(0))
    session, feed = ort.InferenceSession(source.SerializeToString(), pool=pool), next(feeds)
    session.run(None, feed)
    with uncollected(pool):
        for _ in range(_MANY):
            session.run(None, feed)


def _leave_cycle(array: Any) -> None:
    cycle = [array]
    cycle.append(cycle)


def test_a_full_arena_has_cycles_of_the_program_collected_before_it_is_an_error(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, **{**settings, "arena_bytes": 16 << 20}) as pool:
        gc.disable()
        try:
            for _ in range(40):
                _leave_cycle(pool.empty((1 << 18,)))
            kept = []
            with pytest.raises(ArenaFull, match="arena_bytes"):
                for _ in range(40):
                    kept.append(pool.empty((1 << 18,)))
        finally:
            gc.enable()
        assert len(kept) > 10


def test_an_arena_that_stays_full_is_not_collected_for_again_and_again(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "_PAUSES", 10**6)
    begun: list[int] = []

    def note(phase: str, details: dict[str, int]) -> None:
        if phase == "start" and details["generation"] == 2:
            begun.append(1)

    with poolrt.Pool(workers=1, threads=1, **{**settings, "arena_bytes": 16 << 20}) as pool:
        kept = []
        gc.disable()
        gc.callbacks.append(note)
        try:
            with pytest.raises(ArenaFull):
                while True:
                    kept.append(pool.empty((1 << 18,)))
            assert len(begun) == 1
            # Arguments that find no room go by messages
            assert [*pool.map(len, [b"x" * 30_000] * 20)] == [30_000] * 20
            for _ in range(5):
                with pytest.raises(ArenaFull):
                    pool.empty((1 << 18,))
            assert len(begun) == 1
        finally:
            gc.callbacks.remove(note)
            gc.enable()
