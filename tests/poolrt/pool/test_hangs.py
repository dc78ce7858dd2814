"""Processes that hang instead of dying: stopped by a signal, or at one thing for too long. Nobody waits for them for ever."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.cachestore import CacheStore, CreationFailed
from poolrt.errors import CreatorLost, WorkerLost
from poolrt.graph.lower import lower
from poolrt.graph.wire_parser import parse
from poolrt.workers.engines.target import cpu_target

from .processes import BOUND_S, below, creation_held, family, is_alive, relu_graph, wait_until, workers_of

_X = np.ones((4, 8), np.float32)


@pytest.fixture
def private(settings: dict[str, Any], tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Settings of a pool with its own files, whose test leaves no process behind, stopped or not."""
    before = set(family())
    yield {**settings, "home": str(tmp_path), "lease_s": 1.0}
    assert set(family()) - before == set()


def test_a_stopped_worker_is_replaced_and_its_runs_are_repeated(private: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, **private) as pool:
        model = pool.load(relu_graph())
        (worker,) = workers_of(pool)
        os.kill(worker, signal.SIGSTOP)
        futures = [model.submit(x=_X) for _ in range(5)]
        assert [future.result(BOUND_S)["y"].sum() for future in futures] == [32] * 5
        assert not is_alive(worker)
        assert pool.stats()["workers_lost"] == 1


def test_a_worker_that_is_stopped_for_a_moment_keeps_its_work(private: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, **private) as pool:
        model = pool.load(relu_graph())
        (worker,) = workers_of(pool)
        os.kill(worker, signal.SIGSTOP)
        future = model.submit(x=_X)
        with pytest.raises(TimeoutError):
            future.result(1.5)
        os.kill(worker, signal.SIGCONT)
        assert future.result(BOUND_S)["y"].sum() == 32
        assert workers_of(pool) == [worker]


def test_a_stopped_creator_is_replaced_and_the_load_succeeds(private: dict[str, Any]) -> None:
    patient = {**private, "lease_s": 3 * BOUND_S}
    with poolrt.Pool(workers=1, threads=1, **patient) as pool, ThreadPoolExecutor(1) as threads:
        coordinator = pool.stats()["pid"]
        with creation_held(private["home"], relu_graph()):
            load = threads.submit(pool.load, relu_graph())
            wait_until(lambda: bool(below(coordinator, 3)), "a creator is there")
            (creator,) = below(coordinator, 3)
            os.kill(creator, signal.SIGSTOP)
        assert load.result(BOUND_S).run(x=_X)["y"].sum() == 32
        assert not is_alive(creator)


@pytest.mark.slow
def test_a_stopped_preloaded_fork_server_is_replaced_and_the_load_succeeds(private: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, **private) as pool, ThreadPoolExecutor(1) as threads:
        workers, coordinator = workers_of(pool), pool.stats()["pid"]
        load = threads.submit(pool.load, relu_graph())
        wait_until(lambda: len(below(coordinator, 2)) == 2, "the preloaded fork server is there")
        (preloaded,) = set(below(coordinator, 2)) - set(workers)
        os.kill(preloaded, signal.SIGSTOP)
        assert load.result(BOUND_S).run(x=_X)["y"].sum() == 32
        wait_until(lambda: not is_alive(preloaded), "the stopped fork server has been killed")


def test_creations_that_take_too_long_are_an_error_that_names_primitive_and_setting(private: dict[str, Any]) -> None:
    # Given another process's creation of the same primitive, which lasts longer than a creation may
    graph, release = relu_graph(), threading.Event()
    (key,) = lower(parse(graph.to_wire()[0]), {"cpu": cpu_target()}).keys
    store_options = {name: private[name] for name in ("home", "lease_s")}

    def create() -> bytes:
        release.wait(2 * BOUND_S)
        raise RuntimeError("nobody waits for this any more")

    with (
        CacheStore.connect(private["redis_url"], **store_options) as store,
        ThreadPoolExecutor(1) as threads,
        poolrt.Pool(workers=1, threads=1, creation_limit_s=1.0, **private) as pool,
    ):
        other = threads.submit(store.fetch_or_create, key, create)
        wait_until(lambda: any(Path(private["home"]).rglob(f"{key.digest}*")), "the other is at work")
        try:
            # When the graph is loaded, then its creators, who wait for that one, are given up one after the other
            with pytest.raises(CreatorLost, match=r"eltwise.*creation_limit_s") as caught:
                pool.load(graph)
            assert caught.value.attempts == 2
        finally:
            release.set()
        assert isinstance(other.exception(BOUND_S), CreationFailed)
        # And it can be created, by a pool that gives it the time, and loaded by the first
        with poolrt.Pool(workers=1, threads=1, **private) as patient:
            assert patient.load(graph).report["primitives"]["created"] == 1
        assert pool.load(graph).run(x=_X)["y"].sum() == 32


def test_a_run_that_takes_too_long_is_an_error_that_names_model_and_setting(private: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, run_timeout_s=0.5, retries=1, **private) as pool:
        small = pool.load(relu_graph())
        graph = poolrt.Graph("endless")
        value = graph.input("x", (1 << 22,), "float32")
        for _ in range(4000):  # many seconds of work
            value = graph.eltwise(value, "tanh")
        graph.output("y", value)
        model = pool.load(graph)
        with pytest.raises(WorkerLost, match=r"endless.*4000 steps.*run_timeout_s") as caught:
            model.run(x=np.ones(1 << 22, np.float32))
        assert (caught.value.what, caught.value.attempts) == ("endless", 2)
        # The worker that comes up next is as good as the one before.
        assert small.run(x=_X)["y"].sum() == 32


def test_a_function_may_take_longer_than_a_run(private: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, run_timeout_s=0.5, **private) as pool:
        pool.submit(time.sleep, 2).result(BOUND_S)
        assert pool.stats()["workers_lost"] == 0


@pytest.mark.slow
def test_a_stopped_fork_server_is_replaced_when_it_is_needed(private: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, **private) as pool:
        model = pool.load(relu_graph())
        (worker,) = workers_of(pool)
        (fork_server,) = below(pool.stats()["pid"], 1)
        os.kill(fork_server, signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        assert model.submit(x=_X).result(2 * BOUND_S)["y"].sum() == 32
        assert not is_alive(fork_server)


def test_a_pool_whose_processes_are_all_stopped_still_closes_in_time(private: dict[str, Any]) -> None:
    pool = poolrt.Pool(workers=2, **private)
    everyone = [*workers_of(pool), *below(pool.stats()["pid"], 1)]
    for pid in everyone:
        os.kill(pid, signal.SIGSTOP)
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 5
    wait_until(lambda: not any(is_alive(pid) for pid in everyone), "all processes are gone", seconds=1.0)
