"""Priorities of calls and runs on real workers: what is urgent begins first, nothing is lost, doubled or stopped for ever."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import CoordinatorLost, WorkerLost
from poolrt.priorities import OVERTAKEN_LIMIT
from poolrt.priority_view import PriorityView

from .called import length, note, note_slowly, numbers_in, wait_for
from .processes import BOUND_S, relu_graph, wait_until, workers_of
from .servers import started


class _Bench:
    """A pool whose workers can be held, and a file with the calls in the order in which they began."""

    def __init__(self, pool: poolrt.Pool, folder: Path, *, on_rings: bool) -> None:
        self.pool = pool
        self.folder = folder
        self.path = folder / "noted"
        self.note = partial(note, str(self.path))
        self.held: list[Future[None]] = []
        if on_rings:
            wait_until(self._is_on_rings, "both functions are called on rings")
            self.path.unlink()

    def _is_on_rings(self) -> bool:
        calls = self.pool._session.link.client.calls
        (self.folder / "open").touch()
        for _ in range(4):
            self.pool.submit(note, str(self.path), 0).result(BOUND_S)
            self.pool.submit(wait_for, str(self.folder / "open"), str(self.folder / "begun")).result(BOUND_S)
        (self.folder / "open").unlink()
        (self.folder / "begun").unlink()
        return len(calls._rings) == self.pool.workers and all(len(r.functions) == 2 for r in calls._rings.values())

    def hold(self, count: int = 1) -> None:
        """Have workers execute calls until `release`."""
        for number in range(count):
            begun = self.folder / f"begun {number}"
            self.held.append(self.pool.submit(wait_for, str(self.folder / "released"), str(begun)))
            wait_until(begun.exists, "the call has begun")

    def release(self) -> None:
        self.pool.stats(BOUND_S)  # the coordinator has what was sent before
        (self.folder / "released").touch()

    def submit(self, executor: poolrt.Pool | PriorityView, number: int) -> Future[int]:
        return executor.submit(note, str(self.path), number)


@pytest.fixture(params=[pytest.param(way, marks=pytest.mark.one_in(2)) for way in ("on rings", "by messages")])
def bench(request: pytest.FixtureRequest, settings: dict[str, Any], tmp_path: Path) -> Iterator[_Bench]:
    more: dict[str, Any] = {} if request.param == "on rings" else {"max_tasks_per_child": 100_000}
    with poolrt.Pool(workers=1, threads=1, **settings, **more) as pool:
        yield _Bench(pool, tmp_path, on_rings=request.param == "on rings")


def _results(futures: list[Future[int]]) -> list[int]:
    return [future.result(BOUND_S) for future in futures]


def test_an_urgent_call_is_begun_before_100_that_came_earlier(bench: _Bench) -> None:
    # Given a worker that is busy, and 100 calls that wait
    bench.hold()
    low = [bench.submit(bench.pool, number) for number in range(100)]
    # When an urgent one comes
    urgent = bench.submit(bench.pool.at_priority(1), 1000)
    bench.release()
    # Then it is the first, the others keep their order, and each has its own result
    assert _results([urgent, *low]) == [1000, *range(100)]
    assert numbers_in(bench.path) == [1000, *range(100)]


def test_calls_of_one_priority_keep_their_order(bench: _Bench) -> None:
    bench.hold()
    levels = [0, -3, 7, 2, -8, 7, 0]
    futures, expected = [], []
    for number in range(150):
        level = levels[number % len(levels)]
        futures.append(bench.submit(bench.pool.at_priority(level) if level else bench.pool, number))
        expected.append((-level, number))
    bench.release()
    assert _results(futures) == [*range(150)]
    noted = numbers_in(bench.path)
    assert sorted(noted) == [*range(150)]
    for level in levels:
        mine = [number for number in noted if levels[number % len(levels)] == level]
        assert mine == sorted(mine)
    # The urgent ones are first, but for the oldest of others that were overtaken enough
    first = [number for number in noted if levels[number % len(levels)] == 7]
    assert {*first} <= {*noted[: len(first) + 2 * len(levels)]}
    assert noted[:20] == first[:20]


def test_the_oldest_call_is_overtaken_64_times_at_most(bench: _Bench) -> None:
    bench.hold()
    low = [bench.submit(bench.pool, number) for number in range(3)]
    view = bench.pool.at_priority(5)
    urgent = [bench.submit(view, 1000 + number) for number in range(300)]
    bench.release()
    assert _results([*low, *urgent]) == [0, 1, 2, *range(1000, 1300)]
    noted = numbers_in(bench.path)
    places = [noted.index(number) for number in range(3)]
    assert places[0] <= OVERTAKEN_LIMIT
    assert places[1] <= 2 * OVERTAKEN_LIMIT + 1
    assert places[2] <= 3 * OVERTAKEN_LIMIT + 2
    assert [number for number in noted if number >= 1000] == [*range(1000, 1300)]


def test_a_view_maps_in_order_and_before_others(bench: _Bench) -> None:
    bench.hold()
    low = bench.pool.map(bench.note, range(90))
    high = bench.pool.at_priority(3).map(bench.note, range(1000, 1050))
    chunks = bench.pool.at_priority(4).map(bench.note, range(2000, 2050), chunksize=7)
    bench.release()
    assert list(low) == [*range(90)]
    assert list(high) == [*range(1000, 1050)]
    assert list(chunks) == [*range(2000, 2050)]
    noted = numbers_in(bench.path)
    assert sorted(noted) == [*range(90), *range(1000, 1050), *range(2000, 2050)]
    assert noted[:100] == [*range(2000, 2050), *range(1000, 1050)]


def test_calls_that_are_moved_may_be_cancelled_and_time_out(bench: _Bench) -> None:
    bench.hold()
    low = [bench.submit(bench.pool, number) for number in range(100)]
    first = [bench.submit(bench.pool.at_priority(2), 1000 + number) for number in range(10)]
    cancelled = [future for future in [*low[::3], *first[::2]] if future.cancel()]
    assert len(cancelled) == 34 + 5
    second = [bench.submit(bench.pool.at_priority(2), 2000 + number) for number in range(10)]
    with pytest.raises(TimeoutError):
        low[1].result(0.05)
    bench.release()
    kept = [future for future in [*first, *second, *low] if future not in cancelled]
    results = _results(kept)
    assert numbers_in(bench.path) == results
    assert all(future.cancelled() for future in cancelled)


def test_long_arguments_keep_their_values_when_they_are_moved(bench: _Bench) -> None:
    bench.hold()
    low = [bench.pool.submit(length, b"x" * (100 * number), number) for number in range(70)]
    high = [bench.pool.at_priority(1).submit(length, b"y" * (150 * number), number) for number in range(70)]
    bench.release()
    assert [future.result(BOUND_S) for future in low] == [(100 * number, number) for number in range(70)]
    assert [future.result(BOUND_S) for future in high] == [(150 * number, number) for number in range(70)]


def test_threads_that_submit_at_random_get_their_own_results_once(settings: dict[str, Any], tmp_path: Path) -> None:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        bench = _Bench(pool, tmp_path, on_rings=True)
        results: dict[int, int] = {}

        def work(thread: int) -> None:
            futures = {}
            for index in range(400):
                number = 10_000 * thread + index
                futures[number] = bench.submit(pool.at_priority((number * 7) % 16 - 8), number)
                if index % 5 == 0:
                    futures[number].cancel()
            for number, future in futures.items():
                if not future.cancelled():
                    results[number] = future.result(BOUND_S)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_S)
        assert all(number == result for number, result in results.items())
        assert sorted(numbers_in(bench.path)) == sorted(results)


def test_an_urgent_call_leaves_a_worker_that_is_held_up(settings: dict[str, Any], tmp_path: Path) -> None:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        bench = _Bench(pool, tmp_path, on_rings=True)
        bench.hold()
        slow = [pool.submit(note_slowly, str(bench.path), number) for number in range(100)]
        wait_until(lambda: len(numbers_in(bench.path)) >= 5, "the other worker goes on")
        assert pool.at_priority(1).submit(note, str(bench.path), 1000).result(BOUND_S) == 1000
        assert len(numbers_in(bench.path)) < 60
        bench.release()
        assert _results(slow) == [*range(100)]


@pytest.mark.parametrize(
    ("value", "error"), [(8, ValueError), (-9, ValueError), (1.0, TypeError), ("1", TypeError), (True, TypeError)]
)
def test_wrong_priorities_are_refused_with_the_range(pool: poolrt.Pool, value: Any, error: type[Exception]) -> None:
    calls: list[Callable[[], object]] = [
        lambda: pool.at_priority(value),
        lambda: pool.load(poolrt.Graph("g"), priority=value),
    ]
    for call in calls:
        with pytest.raises(error, match="priority must be"):
            call()


def test_the_end_of_a_view_ends_nothing(pool: poolrt.Pool) -> None:
    with pool.at_priority(2) as view:
        assert view.priority == 2
        assert view.submit(abs, -3).result(BOUND_S) == 3
    view.shutdown()
    assert view.submit(abs, -4).result(BOUND_S) == 4
    assert view.at_priority(-1).priority == -1
    assert view.workers == pool.workers
    with pytest.raises(TypeError, match="expect a function"):
        view.submit(3)  # type: ignore[arg-type]


class _Runs:
    """Runs of models of several priorities, and the order in which they have ended."""

    def __init__(self, pool: poolrt.Pool, *priorities: int) -> None:
        self.models = {priority: pool.load(relu_graph(), priority=priority) for priority in priorities}
        self.ended: list[int] = []

    def submit(self, priority: int, number: int) -> Future[Any]:
        future = self.models[priority].submit(x=np.full((4, 8), number, np.float32))
        future.add_done_callback(lambda _: self.ended.append(number))
        return future

    @staticmethod
    def results(futures: list[Future[Any]]) -> list[int]:
        values = [future.result(BOUND_S)["y"] for future in futures]
        assert all((value == value[0, 0]).all() for value in values)
        return [int(value[0, 0]) for value in values]


@pytest.fixture
def one_worker(settings: dict[str, Any], tmp_path: Path) -> Iterator[_Bench]:
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        yield _Bench(pool, tmp_path, on_rings=False)


@pytest.mark.parametrize("warm", [0, 20])
def test_an_urgent_run_is_begun_before_100_that_came_earlier(one_worker: _Bench, warm: int) -> None:
    runs = _Runs(one_worker.pool, 0)
    for number in range(warm):  # on rings
        runs.results([runs.submit(0, number)])
    runs.models |= _Runs(one_worker.pool, 3, -2).models
    runs.ended.clear()
    one_worker.hold()
    lowest = [runs.submit(-2, 3000 + number) for number in range(10)]
    low = [runs.submit(0, number) for number in range(50)]
    urgent = [runs.submit(3, 1000 + number) for number in range(2)]
    one_worker.release()
    assert runs.results([*urgent, *low, *lowest]) == [1000, 1001, *range(50), *range(3000, 3010)]
    wait_until(lambda: len(runs.ended) == 62, "callbacks have returned")
    assert runs.ended == [1000, 1001, *range(50), *range(3000, 3010)]


def test_the_oldest_run_is_overtaken_64_times_at_most(one_worker: _Bench) -> None:
    runs = _Runs(one_worker.pool, 0, 1)
    one_worker.hold()
    low = [runs.submit(0, number) for number in range(2)]
    urgent = [runs.submit(1, 1000 + number) for number in range(150)]
    one_worker.release()
    assert runs.results([*low, *urgent]) == [0, 1, *range(1000, 1150)]
    wait_until(lambda: len(runs.ended) == 152, "callbacks have returned")
    assert [runs.ended.index(number) for number in range(2)] == [OVERTAKEN_LIMIT, 2 * OVERTAKEN_LIMIT + 1]


def test_runs_and_calls_are_each_in_order_and_may_be_cancelled_or_time_out(one_worker: _Bench) -> None:
    runs = _Runs(one_worker.pool, 0, 1)
    view = one_worker.pool.at_priority(1)
    one_worker.hold()
    low_runs = [runs.submit(0, number) for number in range(30)]
    low_calls = [one_worker.submit(one_worker.pool, number) for number in range(30)]
    late = runs.models[0].submit(x=np.zeros((4, 8), np.float32), timeout=0.1)
    urgent_run, urgent_call = runs.submit(1, 1000), one_worker.submit(view, 1000)
    assert all(future.cancel() for future in low_runs[10:20])
    assert all(future.cancel() for future in low_calls[10:20])
    with pytest.raises(TimeoutError):
        late.result(BOUND_S)
    one_worker.release()
    kept = [*range(10), *range(20, 30)]
    assert runs.results([urgent_run, *low_runs[:10], *low_runs[20:]]) == [1000, *kept]
    assert _results([urgent_call, *low_calls[:10], *low_calls[20:]]) == [1000, *kept]
    wait_until(lambda: len(runs.ended) == 31, "callbacks have returned")
    assert [number for number in runs.ended if number not in range(10, 20)] == [1000, *kept]
    assert numbers_in(one_worker.path) == [1000, *kept]


def test_run_map_and_split_batches_of_models_with_priorities_are_right(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        view = pool.at_priority(-4)
        model, other = view.load(relu_graph()), pool.load(relu_graph(), priority=7)
        split = view.load(relu_graph((8, 8)), split_batch=True)
        arrays = [np.random.default_rng(number).standard_normal((4, 8), np.float32) for number in range(60)]
        mapped = model.map(({"x": array} for array in arrays), in_flight=20)
        for array, found in zip(arrays, mapped, strict=True):
            np.testing.assert_array_equal(found["y"], np.maximum(array, 0))
            np.testing.assert_array_equal(other.run(x=array, timeout=BOUND_S)["y"], np.maximum(array, 0))
        batch = np.concatenate(arrays[:2])
        np.testing.assert_array_equal(split.run(x=batch)["y"], np.maximum(batch, 0))


def test_after_kills_of_workers_each_call_was_made_once_or_never_and_runs_are_right(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    generator = random.Random(4)
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        bench, runs = _Bench(pool, tmp_path, on_rings=True), _Runs(pool, -1, 0, 1)
        answered, lost, numbers = set(), 0, iter(range(10**6))
        for _ in range(5):
            calls, models = {}, {}
            for _ in range(100):
                number, priority = next(numbers), generator.choice((-1, 0, 1))
                calls[number] = bench.submit(pool.at_priority(priority), number)
                if number % 4 == 0:
                    models[number] = runs.submit(priority, number)
            time.sleep(generator.random() * 0.004)
            os.kill(generator.choice([pid for pid in workers_of(pool) if pid]), signal.SIGKILL)
            for number, future in calls.items():
                try:
                    assert future.result(BOUND_S) == number
                    answered.add(number)
                except WorkerLost:
                    lost += 1
            assert runs.results([*models.values()]) == [*models]
        noted = numbers_in(bench.path)
        assert len(noted) == len({*noted}), "no call is made twice"
        assert answered <= {*noted}
        assert lost <= 5, "a kill ends one call at most"


def test_the_end_of_a_coordinator_ends_calls_and_runs_with_an_error(settings: dict[str, Any], tmp_path: Path) -> None:
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        bench, runs = _Bench(pool, tmp_path, on_rings=True), _Runs(pool, 0, 2)
        bench.hold()
        futures = [bench.submit(pool.at_priority(number % 3), number) for number in range(90)]
        futures += [runs.submit(2 * (number % 2), number) for number in range(10)]
        os.kill(pool.stats()["pid"], signal.SIGKILL)
        for future in futures:
            with pytest.raises(CoordinatorLost):
                future.result(BOUND_S)
        bench.held.clear()


def test_a_server_that_is_started_again_keeps_priorities(settings: dict[str, Any], tmp_path: Path) -> None:
    place = tmp_path / "socket"
    with started(place, settings, workers=1) as process:
        pool = poolrt.connect(place, reconnect_timeout_s=BOUND_S)
        runs = _Runs(pool, 0, 3)
        view = pool.at_priority(2)
        assert view.submit(abs, -3).result(BOUND_S) == 3
        process.kill()
    with started(place, settings, workers=1), pool:
        assert runs.results([runs.submit(number % 2 * 3, number) for number in range(40)]) == [*range(40)]
        assert view.submit(abs, -3).result(BOUND_S) == 3


def test_priorities_of_one_client_do_not_delay_another_one(settings: dict[str, Any], tmp_path: Path) -> None:
    place = tmp_path / "socket"
    with (
        started(place, settings, workers=1),
        poolrt.connect(place) as one,
        poolrt.connect(place) as other,
    ):
        bench = _Bench(one, tmp_path, on_rings=True)
        theirs = _Runs(other, 0)
        # Given a client that floods with urgent calls and runs, then another one's are done beside these
        mine = _Runs(one, 7)
        view = one.at_priority(7)
        flood = [bench.submit(view, number) for number in range(3000)]
        more = [mine.submit(7, number) for number in range(200)]
        assert [other.submit(abs, -number).result(BOUND_S) for number in range(20)] == [*range(20)]
        assert theirs.results([theirs.submit(0, number) for number in range(20)]) == [*range(20)]
        assert _results(flood) == [*range(3000)]
        assert mine.results(more) == [*range(200)]


def test_a_forked_process_has_views_of_its_own(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        view = pool.at_priority(3)
        assert view.submit(abs, -1).result(BOUND_S) == 1
        process = os.fork()
        if not process:
            try:
                right = [view.submit(abs, -number).result(BOUND_S) for number in range(5)] == [*range(5)]
                pool.close()
                os._exit(0 if right else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
        assert view.submit(abs, -2).result(BOUND_S) == 2
