"""`Model.submit` and `Model.map` on rings: many runs in flight, resolved by the threads that wait, whatever happens meanwhile."""

from __future__ import annotations

import concurrent.futures
import os
import random
import signal
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import ArenaFull, PoolClosed
from poolrt.runs import held_up
from poolrt.workers.ipc.protocol import Kind

from .prepared import count_runs, note_probes, rings_of
from .processes import BOUND_S, relu_graph, stopped, wait_until
from .servers import started

_SHAPE = (4, 8)


@pytest.fixture
def own_pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        yield pool


def _submitted(pool: poolrt.Pool) -> int:
    return sum(ring._ring.submitted for ring in pool._session.link.client.rings._rings.values())


def _load(pool: poolrt.Pool) -> poolrt.Model:
    """Return a model that has a ring to each worker."""
    model = pool.load(relu_graph(_SHAPE))
    for _ in range(5):
        model.run(x=np.zeros(_SHAPE, np.float32))
    rings = pool._session.link.client.rings._rings
    wait_until(
        lambda: len(pool.stats()["workers"]) == len([ring for ring in rings.values() if ring.models]), "rings are there"
    )
    return model


def test_an_interrupt_while_a_large_output_is_taken_leaves_a_future_that_ends(own_pool: poolrt.Pool) -> None:
    x = np.random.default_rng().standard_normal((256, 128), np.float32)
    model = own_pool.load(relu_graph(x.shape))
    for _ in range(5):
        model.run(x=x)
    moment = 0
    interrupted = [True]
    while interrupted:
        interrupted.clear()
        moment += 1
        future = model.submit(x=x)
        driver = future.driver  # type: ignore[attr-defined]
        wait_until(lambda driver=driver: driver.entry.ring._ring.done >= driver.entry.sequence, "it is executed")  # type: ignore[misc]
        left = [moment]

        def interrupt(frame: types.FrameType, event: str, argument: Any) -> None:
            if event in ("call", "c_return") and _is_within(frame, "_take"):
                left[0] -= 1  # noqa: B023
                if left[0] == 0:  # noqa: B023
                    sys.setprofile(None)
                    interrupted.append(True)
                    signal.raise_signal(signal.SIGINT)

        with suppress(KeyboardInterrupt):
            sys.setprofile(interrupt)
            try:
                future.result(BOUND_S)
            finally:
                sys.setprofile(None)
        np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(x, 0))
    assert moment > 10, "outputs are taken by other functions"


def test_a_long_wait_for_a_run_wakes_a_coordinator_that_rests(
    own_pool: poolrt.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _load(own_pool)
    client = own_pool._session.link.client
    send, sent = client.send_nowait, list[Any]()

    def note(message: Any) -> None:
        sent.append(message)
        send(message)

    monkeypatch.setattr(client, "send_nowait", note)
    x = np.ones(_SHAPE, np.float32)
    before = _submitted(own_pool)
    with concurrent.futures.ThreadPoolExecutor(1) as thread, stopped(*_workers(own_pool)):
        run = thread.submit(model.run, x=x)
        wait_until(lambda: _submitted(own_pool) > before, "a run is on a ring")
        wait_until(lambda: [Kind.PING] in sent, "the coordinator gets a message")
    assert run.result(BOUND_S)["y"].sum() == 32


@pytest.mark.parametrize("way", ["future", "map"])
@pytest.mark.parametrize("rows", [4, 1024], ids=["prepared", "not prepared"])
@pytest.mark.one_in(2)
def test_runs_that_no_thread_waits_for_wake_a_coordinator_that_rests(
    own_pool: poolrt.Pool, monkeypatch: pytest.MonkeyPatch, rows: int, way: str
) -> None:
    """Given short runs on rings, when none of them is waited for, then the coordinator gets a message now and then."""
    model = own_pool.load(relu_graph((rows, 8)))
    x = np.ones((rows, 8), np.float32)
    before = _submitted(own_pool)
    wait_until(lambda: model.run(x=x) is not None and _submitted(own_pool) >= before + 8, "runs are on rings")
    client = own_pool._session.link.client
    sent: list[Any] = []
    monkeypatch.setattr(client, "send_nowait", sent.append)

    def begins_one() -> bool:
        if way == "future":
            future = model.submit(x=x)
            wait_until(future.done, "the run has ended")
        else:
            runs = model.map([{"x": x}, {"x": x}])
            next(runs)
            del runs
        return [Kind.PING] in sent

    wait_until(begins_one, "the coordinator gets a message")


def _is_within(frame: types.FrameType | None, name: str) -> bool:
    while frame is not None:
        if frame.f_code.co_name == name and frame.f_globals["__name__"].endswith("submitted_run"):
            return True
        frame = frame.f_back
    return False


def _inputs(count: int, seed: int = 0) -> list[Any]:
    return [*np.random.default_rng(seed).standard_normal((count, *_SHAPE), np.float32)]


def _workers(pool: poolrt.Pool) -> list[int]:
    return [worker["pid"] for worker in pool.stats()["workers"] if worker["pid"]]


def test_futures_and_maps_need_no_coordinator_and_use_both_workers(
    own_pool: poolrt.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_up, "_HELD_UP_S", BOUND_S)  # runs that leave a worker without a processor do need it
    probes = note_probes(monkeypatch)
    model, inputs = _load(own_pool), _inputs(40)
    before = sum(count_runs(ring, probes) for ring in rings_of(own_pool))
    coordinator = own_pool.stats()["pid"]
    with stopped(*_workers(own_pool)):  # memory for all runs is taken on each ring: later, one worker may be slow
        futures = [model.submit(x=x) for x in (*inputs, *inputs)]
    results = [future.result(BOUND_S) for future in futures]
    assert len(results) == 80
    del futures, results
    with stopped(coordinator):
        futures = [model.submit(x=x) for x in inputs]
        results = [future.result(BOUND_S) for future in futures]
        for x, result in zip(inputs, results, strict=True):
            np.testing.assert_array_equal(result["y"], np.maximum(x, 0))
        del results, futures
        for x, result in zip(inputs, model.map(({"x": x} for x in inputs), in_flight=20), strict=True):
            np.testing.assert_array_equal(result["y"], np.maximum(x, 0))
    assert sum(count_runs(ring, probes) for ring in rings_of(own_pool)) == before + 160
    # Runs submitted while both were stopped were shared equally; of the others, a worker gets as many as it is quick.
    assert all(worker["runs"] >= 40 for worker in own_pool.stats()["workers"])


def test_inputs_may_change_as_soon_as_submit_returns_also_if_the_worker_is_killed(own_pool: poolrt.Pool) -> None:
    model, inputs = _load(own_pool), _inputs(30)
    pids = _workers(own_pool)
    futures = []
    with stopped(*pids):
        x = np.empty(_SHAPE, np.float32)
        for values in inputs:
            x[...] = values
            futures.append(model.submit(x=x))
        x[...] = 7
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    for values, future in zip(inputs, futures, strict=True):
        np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(values, 0))


def test_wait_as_completed_and_callbacks_get_runs_that_no_thread_waits_for(own_pool: poolrt.Pool) -> None:
    model, inputs = _load(own_pool), _inputs(20)
    called: deque[concurrent.futures.Future[Any]] = deque()
    futures = [model.submit(x=x) for x in inputs]
    for future in futures:
        future.add_done_callback(called.append)
    wait_until(lambda: len(called) == 20, "all callbacks are called")
    assert {*called} == {*futures}
    futures = [model.submit(x=x) for x in inputs]
    done, not_done = concurrent.futures.wait(futures, BOUND_S)
    assert (len(done), len(not_done)) == (20, 0)
    futures = [model.submit(x=x) for x in inputs]
    assert {*concurrent.futures.as_completed({*futures}, BOUND_S)} == {*futures}
    for x, future in zip(inputs, futures, strict=True):
        np.testing.assert_array_equal(future.result()["y"], np.maximum(x, 0))


def test_a_callback_may_run_and_submit(own_pool: poolrt.Pool) -> None:
    model, (x,) = _load(own_pool), _inputs(1)
    results: deque[Any] = deque()

    def go_on(future: concurrent.futures.Future[Any]) -> None:
        results.append(model.run(x=future.result()["y"])["y"].copy())
        model.submit(x=-x).add_done_callback(lambda last: results.append(last.result()["y"].copy()))

    model.submit(x=x).add_done_callback(go_on)
    wait_until(lambda: len(results) == 2, "both have ended")
    np.testing.assert_array_equal(results[0], np.maximum(x, 0))
    np.testing.assert_array_equal(results[1], np.maximum(-x, 0))


def test_a_future_is_cancelled_unless_its_worker_has_begun_and_then_never_runs(own_pool: poolrt.Pool) -> None:
    model, inputs = _load(own_pool), _inputs(10)
    taken = sum(ring._ring.taken for ring in own_pool._session.link.client.rings._rings.values())
    with stopped(*_workers(own_pool)):
        futures = [model.submit(x=x) for x in inputs]
        assert not any(future.running() or future.done() for future in futures)
        assert [future.cancel() for future in futures[::2]] == [True] * 5
        assert all(future.cancelled() for future in futures[::2])
        with pytest.raises(concurrent.futures.CancelledError):
            futures[0].result(BOUND_S)
        with pytest.raises(concurrent.futures.TimeoutError):
            futures[1].result(0.05)
    for x, future in zip(inputs[1::2], futures[1::2], strict=True):
        np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(x, 0))
        assert not future.cancel()
    runs = sum(ring._ring.taken for ring in own_pool._session.link.client.rings._rings.values())
    assert runs - taken <= 10
    assert not own_pool._session.open_futures._futures


def test_a_shutdown_completes_futures_that_nobody_waits_for(settings: dict[str, Any]) -> None:
    for wait in (True, False):
        pool = poolrt.Pool(workers=1, threads=1, **settings)
        model, inputs = _load(pool), _inputs(30)
        futures = [model.submit(x=x) for x in inputs]
        pool.shutdown(wait)
        for x, future in zip(inputs, futures, strict=True):
            np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(x, 0))


@pytest.mark.parametrize("wait", [True, False])
def test_a_shutdown_completes_runs_that_a_worker_returns_for_a_function(settings: dict[str, Any], wait: bool) -> None:
    """Given runs on a ring before which a function is called, then they are sent by messages, also while the pool ends."""
    graph = poolrt.Graph("some milliseconds")
    value = graph.input("x", (256, 256))
    for _ in range(60):
        value = graph.eltwise(value, "tanh")
    graph.output("y", value)
    x = np.ones((256, 256), np.float32)
    pool = poolrt.Pool(workers=1, threads=1, **settings)
    model = pool.load(graph)
    before = _submitted(pool)
    wait_until(lambda: model.run(x=x) is not None and _submitted(pool) >= before + 4, "runs are on the ring")
    expected = model.run(x=x)["y"]
    client = pool._session.link.client
    sent = client._numbers
    futures = [model.submit(x=x) for _ in range(30)]
    call = pool.submit(time.sleep, 0.2)
    called: list[Any] = []
    futures[-1].add_done_callback(called.append)
    pool.shutdown(wait)
    for future in futures:
        np.testing.assert_array_equal(future.result(BOUND_S)["y"], expected)
    assert call.result(BOUND_S) is None
    wait_until(lambda: called == [futures[-1]], "the callback was called")
    assert client._numbers > sent + 1, "no run was returned"


def test_a_shutdown_cancels_what_has_not_begun(settings: dict[str, Any]) -> None:
    pool = poolrt.Pool(workers=1, threads=1, **settings)
    model, pids = _load(pool), _workers(pool)
    with stopped(*pids):
        futures = [model.submit(x=x) for x in _inputs(10)]
        pool.shutdown(wait=False, cancel_futures=True)
        assert all(future.cancelled() for future in futures)


def test_closing_a_pool_ends_futures_with_an_error(settings: dict[str, Any]) -> None:
    pool = poolrt.Pool(workers=1, threads=1, **settings)
    model, pids = _load(pool), _workers(pool)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    futures = [model.submit(x=x) for x in _inputs(10)]
    futures[5].add_done_callback(lambda future: None)
    pool.close()
    for future in futures:
        with pytest.raises(PoolClosed):
            future.result(BOUND_S)


def test_threads_may_wait_for_one_future(own_pool: poolrt.Pool) -> None:
    model, (x,) = _load(own_pool), _inputs(1)
    results: deque[Any] = deque()
    with stopped(*_workers(own_pool)):
        future = model.submit(x=x)
        threads = [threading.Thread(target=lambda: results.append(future.result(BOUND_S))) for _ in range(6)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join(BOUND_S)
    assert len(results) == 6
    assert all(result is results[0] for result in results)


def test_an_interrupt_of_a_wait_leaves_futures_and_maps_that_work(own_pool: poolrt.Pool) -> None:
    model, inputs = _load(own_pool), _inputs(10)
    rings = own_pool._session.link.client.rings._rings

    def interrupt() -> None:
        wait_until(lambda: any(ring.leading for ring in rings.values()), "the thread waits for a worker")
        time.sleep(0.03)  # not while it looks for messages, which may end the connection
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    for waits in ("result", "map"):
        with stopped(*_workers(own_pool)):
            futures = [model.submit(x=x) for x in inputs]
            timer = threading.Thread(target=interrupt)
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                if waits == "result":
                    futures[3].result(BOUND_S)
                else:
                    next(model.map([{"x": x} for x in inputs]))
            timer.join()
        for x, future in zip(inputs, futures, strict=True):
            np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(x, 0))
        del futures


def test_a_map_that_is_left_gives_its_memory_back(own_pool: poolrt.Pool) -> None:
    model, inputs = _load(own_pool), _inputs(16)
    batches = [{"x": x} for x in inputs]
    for _ in range(3):
        [*model.map(batches)]
    used = own_pool.stats()["arena"]["used"]
    for _ in range(50):
        steps = model.map(batches)
        next(steps)
        del steps
    [*model.map(batches)]
    assert own_pool.stats()["arena"]["used"] <= used + 16 * 1024


def test_dropped_futures_keep_no_memory_and_no_model(settings: dict[str, Any]) -> None:
    graph = poolrt.Graph("large")
    graph.output("y", graph.eltwise(graph.input("x", (512, 512)), "relu"))
    x = np.ones((512, 512), np.float32)
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        model = pool.load(graph)
        for _ in range(5):
            model.run(x=x)
        # Runs with 8 times more outputs than the arena has room for
        for _ in range(500):
            model.submit(x=x)
        assert pool._session.link.client.open_futures._on_rings
        model.close()
        wait_until(lambda: not pool._session.link.client.open_futures._futures, "all have ended")

        def used() -> int:
            with suppress(ArenaFull):
                pool.empty((1 << 27,), "uint8")  # slots that are kept for inputs are released
            return int(pool.stats()["arena"]["used"])

        wait_until(lambda: not used(), "nothing is left")


def test_more_runs_than_rings_hold_are_in_flight_and_right(own_pool: poolrt.Pool) -> None:
    model, inputs = _load(own_pool), _inputs(250)
    with stopped(*_workers(own_pool)):
        futures = [model.submit(x=x) for x in inputs]
    for x, future in zip(inputs, futures, strict=True):
        np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(x, 0))


def test_results_are_right_while_workers_are_killed_at_random_with_many_in_flight(settings: dict[str, Any]) -> None:
    drawn = random.Random(3)
    with poolrt.Pool(workers=2, threads=1, retries=50, **settings) as pool:
        model = _load(pool)
        stop = threading.Event()

        def kill() -> None:
            while not stop.wait(drawn.uniform(0.02, 0.2)):
                if pids := _workers(pool):
                    os.kill(drawn.choice(pids), signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            begin, count = time.monotonic(), 0
            under_way: deque[tuple[Any, Any]] = deque()

            def check_oldest() -> None:
                values, future = under_way.popleft()
                np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(values, 0))

            while (spent := time.monotonic() - begin) < 3 or (spent < BOUND_S and pool.stats()["workers_lost"] < 5):
                for x in _inputs(20, count):
                    if len(under_way) >= 50:
                        check_oldest()
                    under_way.append((x, model.submit(x=x)))
                    count += 1
        finally:
            stop.set()
            killer.join(BOUND_S)
        while under_way:
            check_oldest()
        assert pool.stats()["workers_lost"] >= 5
        # The books agree with a count from outside: each run was executed, and what is in use is what is kept.
        assert not pool._session.open_futures._futures
        for ring in pool._session.link.client.rings._rings.values():
            ring.look()
            assert not ring.under_way
        memory = pool._session.memory
        wait_until(
            lambda: pool.stats()["arena"]["used"] <= memory._kept._nbytes + memory._kept_outputs._nbytes + 64 * 1024,
            "the rest is released",
        )


def test_clients_with_many_runs_in_flight_get_their_own_results(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = tmp_path / "pool.sock"
    with started(path, settings, workers=2):
        clients = [poolrt.connect(path) for _ in range(3)]
        try:
            models = [_load(client) for client in clients]
            inputs = [_inputs(60, seed) for seed in range(3)]
            for _ in range(5):
                futures = [[model.submit(x=x) for x in mine] for model, mine in zip(models, inputs, strict=True)]
                for mine, found in zip(inputs, futures, strict=True):
                    for x, future in zip(mine, found, strict=True):
                        np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(x, 0))
        finally:
            for client in clients:
                client.close()
