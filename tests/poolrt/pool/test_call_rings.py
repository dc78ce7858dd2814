"""Functions on rings: called once, printed in order, cancelled, moved, and as right as by messages when processes are killed."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import CallNotLoaded, CoordinatorLost, PoolClosed, WorkerLost
from poolrt.functions.call_rings import CallRings
from poolrt.workers.ipc.call_ring import SubmittingCallRing

from . import called
from .called import (
    Ending,
    end_by,
    large,
    note,
    note_or_return,
    numbers_in,
    raise_unless_zero,
    speak,
    unloadable,
    wait_or,
)
from .processes import BOUND_S, relu_graph, wait_until, workers_of
from .servers import started


def _rings(pool: poolrt.Pool) -> CallRings:
    return pool._session.link.client.calls


def _entries(pool: poolrt.Pool) -> int:
    """Return how many calls have been submitted on the rings of a pool."""
    return sum(each.ring.submitted for each in _rings(pool)._rings.values())


def _warm(pool: poolrt.Pool, *functions: Callable[..., Any]) -> None:
    """Let functions be called on rings to all workers; they accept an integer as their last argument."""
    for function in functions:
        wait_until(partial(_is_on_all_rings, pool, function), "the function is called on rings")


def _is_on_all_rings(pool: poolrt.Pool, function: Callable[..., Any]) -> bool:
    before = _entries(pool)
    for _ in range(4):
        pool.submit(function, 0).result(BOUND_S)
    rings = _rings(pool)._rings.values()
    numbers = [len(ring.functions) for ring in rings]
    return _entries(pool) >= before + 4 and len(numbers) == pool.workers and len({*numbers}) == 1


@pytest.fixture
def own_pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        yield pool


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, Any]) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("server") / "pool.sock"
    with started(path, settings, workers=2):
        yield path


def test_calls_on_rings_need_no_coordinator_and_count_as_runs(own_pool: poolrt.Pool) -> None:
    _warm(own_pool, abs)
    stats = own_pool.stats()
    before = sum(worker["runs"] for worker in stats["workers"])
    os.kill(stats["pid"], signal.SIGSTOP)
    try:
        assert [own_pool.submit(abs, -number).result(BOUND_S) for number in range(50)] == [*range(50)]
        assert [*own_pool.map(abs, range(-200, 0))] == [*range(200, 0, -1)]
    finally:
        os.kill(stats["pid"], signal.SIGCONT)
    assert sum(worker["runs"] for worker in own_pool.stats()["workers"]) == before + 250


def test_results_exceptions_and_prints_are_those_of_messages(own_pool: poolrt.Pool) -> None:
    _warm(own_pool, speak, raise_unless_zero, large, unloadable)
    before = _entries(own_pool)
    text = StringIO()
    with redirect_stdout(text):
        futures = [own_pool.submit(speak, number) for number in range(1, 30)]
        for number, future in enumerate(futures, 1):
            assert future.result(BOUND_S) == number
            assert f"line {number}\n" in text.getvalue()
            assert f"end {number}" in text.getvalue()
    failed = own_pool.submit(raise_unless_zero, 7)
    with pytest.raises(KeyError, match="7") as error:
        failed.result(BOUND_S)
    assert "raise_unless_zero" in str(error.value.__cause__)
    for nbytes in (0, 1000, 16_000, 17_000, 3_000_000):
        assert own_pool.submit(large, nbytes).result(BOUND_S) == bytes(nbytes)
    with pytest.raises(CallNotLoaded, match="not here"):
        own_pool.submit(unloadable, 1).result(BOUND_S)
    assert own_pool.submit(len, bytes(1_000_000)).result(BOUND_S) == 1_000_000
    assert _entries(own_pool) > before + 30


def test_a_function_of_the_program_sees_the_globals_of_each_submission(own_pool: poolrt.Pool) -> None:
    main = sys.modules["__main__"].__dict__
    exec("def scaled(x): return x * factor + offsets[0]\nfactor, offsets = 1, [0]", main)
    exec("def plain(x): return x * factor", main)
    try:
        for number in range(30):
            main["factor"], main["offsets"][0] = number, number * 1000
            assert own_pool.submit(main["scaled"], 2).result(BOUND_S) == 2 * number + number * 1000
            assert own_pool.submit(main["plain"], 2).result(BOUND_S) == 2 * number
        exec("def plain(x): return -x", main)
        assert own_pool.submit(main["plain"], 2).result(BOUND_S) == -2
        main["plain"].__defaults__ = (5,)
        assert own_pool.submit(main["plain"]).result(BOUND_S) == -5
    finally:
        for name in ("scaled", "plain", "factor", "offsets"):
            main.pop(name, None)


def test_many_threads_get_their_own_results(own_pool: poolrt.Pool) -> None:
    _warm(own_pool, abs)
    wrong: list[object] = []

    def work(start: int) -> None:
        for number in range(start, start + 300):
            found = own_pool.submit(abs, -number).result(BOUND_S)
            if found != number:
                wrong.append((number, found))
        found_all = [*own_pool.map(abs, range(-start - 50, -start))]
        if found_all != [*range(start + 50, start, -1)]:
            wrong.append(found_all)

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * BOUND_S)
        assert not thread.is_alive()
    assert not wrong


def test_waits_callbacks_and_calls_that_nothing_waits_for_end(own_pool: poolrt.Pool, tmp_path: Path) -> None:
    _warm(own_pool, abs)
    futures = [own_pool.submit(abs, -number) for number in range(500)]
    done, open_ = concurrent.futures.wait(futures, BOUND_S)
    assert not open_
    assert {future.result() for future in done} == set(range(500))
    called: list[int] = []
    for number in range(300):
        own_pool.submit(abs, -number).add_done_callback(lambda future: called.append(future.result()))
    wait_until(lambda: len(called) == 300, "all callbacks are called")
    path = tmp_path / "noted"
    for number in range(500):
        own_pool.submit(note, str(path), number)
    wait_until(lambda: sorted(numbers_in(path)) == [*range(500)], "all are called though no thread waits")


def test_calls_behind_a_long_one_are_moved_to_an_idle_worker(own_pool: poolrt.Pool, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    _warm_waiting(own_pool, hold)
    hold.touch()
    results = own_pool.map(wait_or, [str(hold)] * 300, range(1, 301))
    others = [own_pool.submit(wait_or, str(hold), 2) for _ in range(40)]
    assert all(future.result(BOUND_S) == 2 for future in others)
    hold.unlink()
    assert [*results] == [*range(1, 301)]


def _warm_waiting(pool: poolrt.Pool, hold: Path) -> None:
    def ready() -> bool:
        before = _entries(pool)
        for _ in range(4):
            pool.submit(wait_or, str(hold), 0).result(BOUND_S)
        return _entries(pool) == before + 4 and len(_rings(pool)._rings) == pool.workers

    wait_until(ready, "the function is called on rings")


def test_a_call_is_cancelled_until_it_begins(own_pool: poolrt.Pool, tmp_path: Path) -> None:
    hold, path = tmp_path / "hold", tmp_path / "noted"
    _warm_waiting(own_pool, hold)
    _warm(own_pool, abs)
    for _ in range(4):
        own_pool.submit(note, str(tmp_path / "other"), 0).result(BOUND_S)
    hold.touch()
    holding = [own_pool.submit(wait_or, str(hold), 1) for _ in range(2)]
    wait_until(lambda: all(future.running() for future in holding), "both workers are busy")
    assert not holding[0].cancel()
    waiting = [own_pool.submit(note, str(path), number) for number in range(200)]
    assert all(future.cancel() for future in waiting[::2])
    assert all(future.cancelled() for future in waiting[::2])
    hold.unlink()
    concurrent.futures.wait(waiting, BOUND_S)
    assert sorted(numbers_in(path)) == [*range(1, 200, 2)]
    assert [future.result(BOUND_S) for future in waiting[1::2]] == [*range(1, 200, 2)]


def test_cancels_at_any_moment_leave_each_call_called_once_or_never(own_pool: poolrt.Pool, tmp_path: Path) -> None:
    path = tmp_path / "noted"
    for _ in range(8):
        own_pool.submit(note, str(tmp_path / "other"), 0).result(BOUND_S)
    generator = random.Random(5)
    futures = []
    cancelled = set()
    for number in range(1500):
        futures.append(own_pool.submit(note, str(path), number))
        if generator.random() < 0.5:
            place = generator.randrange(max(0, number - 20), number + 1)
            if futures[place].cancel():
                cancelled.add(place)
    concurrent.futures.wait(futures, BOUND_S)
    assert {n for n, future in enumerate(futures) if future.cancelled()} == cancelled
    assert sorted(numbers_in(path)) == sorted({*range(1500)} - cancelled)


def test_runs_and_calls_share_workers(own_pool: poolrt.Pool, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    _warm_waiting(own_pool, hold)
    model, x = own_pool.load(relu_graph()), np.ones((4, 8), np.float32)
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            assert [*own_pool.map(wait_or, [str(hold)] * 50, [0] * 50)] == [0] * 50

    thread = threading.Thread(target=call)
    thread.start()
    try:
        for _ in range(50):
            assert model.run(x=x)["y"].sum() == 32
    finally:
        stop.set()
        thread.join(BOUND_S)
    assert not thread.is_alive()
    # A run is never given to a worker that calls a function, however long that takes.
    hold.touch()
    future = own_pool.submit(wait_or, str(hold), 1)
    wait_until(future.running, "one worker is busy")
    for _ in range(20):
        assert model.run(x=x)["y"].sum() == 32
        assert own_pool.submit(wait_or, str(hold), 0).result(BOUND_S) == 0
    second = own_pool.submit(wait_or, str(hold), 1)
    wait_until(second.running, "both workers are busy")
    waiting = model.submit(x=x)
    time.sleep(0.05)
    assert not waiting.done()
    hold.unlink()
    assert waiting.result(BOUND_S)["y"].sum() == 32
    assert (future.result(BOUND_S), second.result(BOUND_S)) == (1, 1)


def test_a_client_calls_beside_another_one_that_floods(server: Path) -> None:
    with poolrt.connect(server) as one, poolrt.connect(server) as other:
        _warm(one, abs)
        _warm(other, abs)
        flood = [one.submit(abs, -number) for number in range(5000)]
        assert [other.submit(abs, -number).result(BOUND_S) for number in range(20)] == [*range(20)]
        assert [future.result(BOUND_S) for future in flood] == [*range(5000)]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_after_kills_at_random_each_call_was_made_once_or_never(
    settings: dict[str, Any], tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "noted"
    generator = random.Random(seed)
    numbers = iter(range(10**6))
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        for _ in range(8):
            pool.submit(note, str(path), next(numbers)).result(BOUND_S)
        results: dict[int, bool] = {}
        lost = 0
        for _ in range(12):
            batch = {number: pool.submit(note, str(path), number) for number in [next(numbers) for _ in range(100)]}
            time.sleep(generator.random() * 0.004)
            pids = [pid for pid in workers_of(pool) if pid]
            with suppress(ProcessLookupError):
                os.kill(generator.choice(pids), signal.SIGKILL)
            for number, future in batch.items():
                try:
                    assert future.result(BOUND_S) == number
                    results[number] = True
                except WorkerLost:
                    results[number] = False
                    lost += 1
        wait_until(lambda: _calls(pool), "the pool calls functions")
    calls = numbers_in(path)
    assert len(calls) == len({*calls}), "no call is made twice"
    assert {number for number, answered in results.items() if answered} <= {*calls}
    assert lost <= 12, "a kill ends one call at most"


def test_the_end_of_a_server_ends_calls_with_an_error_and_the_next_one_is_called(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    hold = tmp_path / "hold"
    place = tmp_path / "socket"
    with started(place, settings, workers=2) as process:
        pool = poolrt.connect(place, reconnect_timeout_s=20)
        _warm_waiting(pool, hold)
        hold.touch()
        futures = [pool.submit(wait_or, str(hold), 1) for _ in range(10)]
        process.kill()
        for future in futures:
            with pytest.raises(CoordinatorLost, match="not called twice"):
                future.result(BOUND_S)
        hold.unlink()
    with started(place, settings, workers=2), pool:
        _warm_waiting(pool, hold)


def test_a_closed_pool_ends_calls_that_wait(settings: dict[str, Any], tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    pool = poolrt.Pool(workers=2, threads=1, **settings)
    _warm_waiting(pool, hold)
    hold.touch()
    futures = [pool.submit(wait_or, str(hold), 1) for _ in range(10)]
    pool.close()
    for future in futures:
        with pytest.raises(PoolClosed):
            future.result(BOUND_S)


def _calls(pool: poolrt.Pool) -> bool:
    try:
        return pool.submit(abs, -3).result(BOUND_S) == 3
    except WorkerLost:
        return False  # the coordinator has not noticed the last kill


def _jump(ring: SubmittingCallRing) -> None:
    ring._words[8] += 1000


def _unknown(ring: SubmittingCallRing) -> None:
    ring.publish(ring.append(10**6, 1, b""))


def _noise(ring: SubmittingCallRing) -> None:
    ring._bytes[:] = np.random.default_rng(3).integers(0, 256, len(ring._bytes), np.uint8).tobytes()


@pytest.mark.parametrize("write", [_jump, _unknown, _noise])
def test_a_client_that_writes_anything_else_loses_its_connection(
    server: Path, write: Callable[[SubmittingCallRing], None]
) -> None:
    with poolrt.connect(server) as other:
        _warm(other, abs)
        with poolrt.connect(server, reconnect_timeout_s=0) as pool:
            _warm(pool, abs)
            ring = next(iter(_rings(pool)._rings.values()))
            write(ring.ring)
            with suppress(BrokenPipeError):  # the worker has looked by itself, and has left the ring
                ring.bell.send(b"\0")
            wait_until(lambda: _is_closed(pool), "the client is disconnected")
        assert [other.submit(abs, -number).result(BOUND_S) for number in range(50)] == [*range(50)]
        assert other.stats()["workers_lost"] == 0


def _is_closed(pool: poolrt.Pool) -> bool:
    try:
        pool.stats(1.0)
    except PoolClosed:
        return True
    return False


@pytest.mark.parametrize("warm", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_lost_worker_names_the_function_and_the_signal(own_pool: poolrt.Pool, warm: bool) -> None:
    """Given functions by message and on a ring, when they end their worker, then the error names each as its module does."""
    if warm:
        _warm(own_pool, end_by)
    name = rf"{called.__name__}\.end_by"
    ending = "the worker process that executed it was lost; functions are not repeated; it was ended by SIG"
    for number in (signal.SIGKILL, signal.SIGTERM):
        with pytest.raises(WorkerLost, match=f"function {name}: {ending}") as lost:
            own_pool.submit(end_by, number).result(BOUND_S)
        assert lost.value.what == f"{called.__name__}.end_by"
        assert signal.Signals(number).name in str(lost.value)
    others: tuple[tuple[Callable[[int], int], str], ...] = (
        (Ending().end, rf"{called.__name__}\.Ending\.end"),
        (partial(end_by), name),
        (lambda number: end_by(number), rf"{__name__}\..*<lambda>"),
    )
    for function, its_name in others:
        with pytest.raises(WorkerLost, match=f"function {its_name}: {ending}KILL"):
            own_pool.submit(function, signal.SIGKILL).result(BOUND_S)
    for chunk in (1, 3):
        with pytest.raises(WorkerLost, match=f"function {name}: "):
            list(own_pool.map(end_by, [signal.SIGKILL] * 3, chunksize=chunk, timeout=BOUND_S))


def test_an_iterator_that_is_collected_while_a_lock_is_held_cancels_its_calls_later(
    own_pool: poolrt.Pool, tmp_path: Path
) -> None:
    """Given a map in a circle, when it is collected in a thread that holds the lock of the rings, then nothing hangs."""
    _warm(own_pool, note_or_return)
    path = str(tmp_path / "notes")
    iterator = own_pool.map(partial(note_or_return, path), range(100))
    circle: list[Any] = [iterator]
    circle.append(circle)
    calls = _rings(own_pool)
    collected = threading.Event()

    def collect() -> None:
        with calls._lock, own_pool._session.link.memory._lock:
            gc.collect()
        collected.set()

    del iterator, circle
    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    assert collected.wait(BOUND_S)
    wait_until(lambda: not calls.outstanding, "the calls are cancelled")
    assert len(numbers_in(tmp_path / "notes")) < 100
    assert own_pool.submit(abs, -3).result(BOUND_S) == 3


def test_clients_call_by_different_workers_also_after_workers_were_lost(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "pool.sock"
    with started(path, settings, workers=2), poolrt.connect(path) as one, poolrt.connect(path) as other:

        def share_workers() -> bool:
            before = [worker["runs"] for worker in one.stats()["workers"]]
            for pool in (one, other):
                for _ in range(100):
                    assert pool.submit(abs, -3).result(BOUND_S) == 3
            after = [worker["runs"] for worker in one.stats()["workers"]]
            return all(b - a >= 90 for a, b in zip(before, after, strict=True))

        wait_until(share_workers, "each client uses another worker")
        for pid in workers_of(one):
            os.kill(pid, signal.SIGKILL)
            workers_of(one, [pid])
            wait_until(share_workers, "each client uses another worker")
