"""Runs with a timeout: they end in time, by messages and on rings, and leave a pool that works."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import poolrt

from .prepared import load, places_of
from .processes import is_alive, relu_graph, stopped, wait_until, workers_of

_X = np.ones((4, 8), np.float32)


@pytest.fixture(scope="module")
def own_pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        yield pool


@pytest.mark.parametrize("before", [0, 8], ids=["messages", "ring"])
def test_a_run_ends_in_time_if_its_worker_does_not_and_the_next_one_is_right(
    own_pool: poolrt.Pool, before: int
) -> None:
    model = own_pool.load(relu_graph())
    for _ in range(before):
        model.run(x=_X, timeout=60)
    if before:  # places for runs keep some memory once they are there
        wait_until(lambda: model.run(x=_X)["y"].sum() == 32 and len(places_of(model)) > 0, "runs are prepared")
    (worker,) = workers_of(own_pool)
    used = own_pool.stats()["arena"]["used"]
    os.kill(worker, signal.SIGSTOP)
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match=r"a run of model relu has not ended within 0.05 s"):
        model.run(x=_X, timeout=0.05)
    assert time.monotonic() - begin < 5
    os.kill(worker, signal.SIGCONT)
    assert model.run(x=2 * _X)["y"].sum() == 64
    model.run(x=_X)
    wait_until(lambda: own_pool.stats()["arena"]["used"] <= used + 512, "its outputs are released")


def test_a_timeout_that_is_over_or_no_number_is_refused(own_pool: poolrt.Pool) -> None:
    model = own_pool.load(relu_graph())
    with pytest.raises(TypeError, match="timeout must be a number of seconds, got str"):
        model.run(x=_X, timeout="soon")
    (worker,) = workers_of(own_pool)
    os.kill(worker, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):
            model.run(x=_X, timeout=-1)
    finally:
        os.kill(worker, signal.SIGCONT)
    assert model.run(x=_X, timeout=60)["y"].sum() == 32


def test_an_input_may_be_named_timeout(own_pool: poolrt.Pool) -> None:
    graph = poolrt.Graph("named")
    graph.output("y", graph.eltwise(graph.input("timeout", (4, 8)), "relu"))
    model = own_pool.load(graph)
    assert model.run(timeout=_X)["y"].sum() == 32
    assert model.submit(timeout=_X).result(60)["y"].sum() == 32
    assert [outputs["y"].sum() for outputs in model.map([{"timeout": _X}])] == [32]


@pytest.mark.parametrize("before", [0, 8], ids=["messages", "ring"])
def test_a_future_gets_its_timeout_though_no_thread_waits_and_the_others_get_results(
    own_pool: poolrt.Pool, before: int
) -> None:
    model = own_pool.load(relu_graph())
    for _ in range(before):
        model.run(x=_X)
    (worker,) = workers_of(own_pool)
    ended: list[float] = []
    os.kill(worker, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        timed = [model.submit(x=_X, timeout=0.1 * number) for number in (3, 1, 2)]
        others = [model.submit(x=number * _X) for number in range(3)]
        timed[1].add_done_callback(lambda future: ended.append(time.monotonic() - begin))
        wait_until(lambda: all(future._state == "FINISHED" for future in timed), "all are over")
        assert 0.1 <= ended[0] < 5
        for future, number in zip(timed, (3, 1, 2), strict=True):
            with pytest.raises(TimeoutError, match=f"a run of model relu has not ended within 0.{number} s"):
                future.result()
    finally:
        os.kill(worker, signal.SIGCONT)
    assert [future.result(60)["y"].sum() for future in others] == [0, 32, 64]
    assert [model.submit(x=_X, timeout=60).result()["y"].sum() for _ in range(3)] == [32] * 3


@pytest.mark.parametrize("way", ["messages", "ring", "prepared"])
def test_a_thread_that_waits_for_a_future_gets_its_timeout_and_not_the_end_of_its_worker(
    own_pool: poolrt.Pool, way: str
) -> None:
    x = np.ones((128, 64) if way == "ring" else (4, 8), np.float32)
    if way == "prepared":
        model = load(own_pool, workers=1)
    else:
        model = own_pool.load(relu_graph(x.shape))
        for _ in range(8 if way == "ring" else 0):
            model.run(x=x)
    (worker,) = workers_of(own_pool)
    with stopped(worker):
        futures = [model.submit(x=x, timeout=0.05) for _ in range(5)]
        for future in futures:
            with pytest.raises(TimeoutError, match=r"a run of model relu has not ended within 0.05 s"):
                future.result()
        assert is_alive(worker), "it was waited for"
    assert model.submit(x=x, timeout=60).result()["y"].sum() == x.sum()


def test_a_timeout_is_no_refusal_though_the_coordinator_answers_before_the_future_is_done(
    own_pool: poolrt.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = own_pool.load(relu_graph())
    client = own_pool._session.link.client
    send = client.send_nowait

    def send_slowly(message: list[Any]) -> None:
        send(message)
        time.sleep(0.3)

    monkeypatch.setattr(client, "send_nowait", send_slowly)
    (worker,) = workers_of(own_pool)
    os.kill(worker, signal.SIGSTOP)
    try:
        futures = [model.submit(x=_X, timeout=0.1) for _ in range(3)]
        for future in futures:
            with pytest.raises(TimeoutError, match="a run of model relu has not ended within"):
                future.result(30)
    finally:
        os.kill(worker, signal.SIGCONT)


@pytest.mark.parametrize("before", [0, 8], ids=["messages", "ring"])
def test_a_map_ends_with_a_timeout_and_leaves_nothing_in_flight(own_pool: poolrt.Pool, before: int) -> None:
    model = own_pool.load(relu_graph())
    for _ in range(before):
        model.run(x=_X)
    assert [outputs["y"].sum() for outputs in model.map([{"x": _X}] * 20, timeout=60)] == [32] * 20
    (worker,) = workers_of(own_pool)
    os.kill(worker, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        with pytest.raises(TimeoutError, match=r"a run of model relu has not ended within 0.05 s"):
            list(model.map([{"x": _X}] * 20, timeout=0.05))
        assert time.monotonic() - begin < 5
    finally:
        os.kill(worker, signal.SIGCONT)
    assert model.run(x=2 * _X)["y"].sum() == 64
    with pytest.raises(TypeError, match="timeout must be a number of seconds, got str"):
        model.map([{"x": _X}], timeout="soon")  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [64, 512], ids=["prepared", "not prepared"])
@pytest.mark.parametrize("what", ["submit", "map"])
@pytest.mark.one_in(4)
def test_a_worker_that_has_begun_a_run_whose_time_is_over_is_replaced(
    settings: dict[str, Any], what: str, size: int
) -> None:
    graph = poolrt.Graph("long")
    x = graph.input("x", (size, size))
    for _ in range(2000 if size == 64 else 200):  # some hundredths of a second
        x = graph.eltwise(x, "tanh")
    graph.output("y", x)
    given = np.zeros((size, size), np.float32)
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        model = pool.load(graph)
        for _ in range(8):
            model.run(x=given)
        (worker,) = workers_of(pool)
        rings = pool._session.client.rings
        taken = sum(ring._ring.taken for ring in rings._all)

        def stop() -> None:
            wait_until(lambda: sum(ring._ring.taken for ring in rings._all) > taken, "it has begun")
            os.kill(worker, signal.SIGSTOP)

        stopping = threading.Thread(target=stop)
        stopping.start()
        with pytest.raises(TimeoutError, match="a run of model long has not ended within 1 s"):
            if what == "submit":
                futures = [model.submit(x=given, timeout=1) for _ in range(100)]  # they take seconds
                [future.result() for future in futures]
            else:
                list(model.map([{"x": given}] * 200, timeout=1))
        stopping.join(60)
        wait_until(lambda: workers_of(pool, [worker]) != [], "the worker is replaced", 60)
        assert (model.run(x=given)["y"] == 0).all()


def test_futures_with_distant_deadlines_are_dropped_when_they_are_done(own_pool: poolrt.Pool) -> None:
    model = own_pool.load(relu_graph())
    for _ in range(8):
        model.run(x=_X)
    for _ in range(1000):
        assert model.submit(x=_X, timeout=3600).result()["y"].sum() == 32
    assert len(own_pool._session.deadlines._watched) < 600
