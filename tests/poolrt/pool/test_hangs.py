"""Processes that hang instead of dying: stopped by a signal, or at one thing for too long. No wait for them lasts for ever."""

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
from poolrt.coordinator.processes import STOPPED_S
from poolrt.errors import CreatorLost, WorkerLost
from poolrt.graph.lower import lower
from poolrt.graph.wire_parser import parse
from poolrt.workers.engines.target import cpu_target
from tests.startup.shared_compiler import FOLDER

from .processes import (
    BOUND_S,
    below,
    creation_held,
    family,
    is_alive,
    relu_graph,
    stopped,
    until_there,
    wait_until,
    workers_of,
)

_X = np.ones((4, 8), np.float32)


@pytest.fixture
def private(settings: dict[str, Any], tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Settings of a pool with its own files, whose test leaves no process behind, stopped or not."""
    before = set(family())
    yield {**settings, "home": str(tmp_path), "lease_s": 1.0}
    assert set(family()) - before == set()


def test_a_worker_that_is_stopped_for_a_moment_keeps_its_work(private: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, **private) as pool:
        model = pool.load(relu_graph())
        (worker,) = workers_of(pool)
        os.kill(worker, signal.SIGSTOP)
        future = model.submit(x=_X)
        with pytest.raises(TimeoutError):
            future.result(1.2)
        os.kill(worker, signal.SIGCONT)
        assert future.result(BOUND_S)["y"].sum() == 32
        assert workers_of(pool) == [worker]


@pytest.mark.slow
def test_a_worker_that_goes_on_between_stops_keeps_its_work(private: dict[str, Any]) -> None:
    """Tools that limit processor time (cpulimit) stop processes again and again."""
    with poolrt.Pool(workers=1, threads=1, **private) as pool:
        model = pool.load(relu_graph())
        (worker,) = workers_of(pool)
        until = time.monotonic() + 2 * STOPPED_S
        while time.monotonic() < until:
            with stopped(worker):
                time.sleep(0.3)
            time.sleep(0.01)
        assert model.submit(x=_X).result(BOUND_S)["y"].sum() == 32
        assert workers_of(pool) == [worker]


def test_a_stopped_worker_and_a_stopped_creator_are_replaced_and_their_work_is_repeated(
    private: dict[str, Any],
) -> None:
    patient = {**private, "lease_s": 3 * BOUND_S}
    with poolrt.Pool(workers=1, threads=1, **patient) as pool, ThreadPoolExecutor(1) as threads:
        model, other = pool.load(relu_graph()), relu_graph((2, 4), step="abs")
        coordinator, (worker,) = pool.stats()["pid"], workers_of(pool)
        with creation_held(private["home"], other):
            load = threads.submit(pool.load, other)
            wait_until(lambda: bool(below(coordinator, 3)), "a creator is there")
            (creator,) = below(coordinator, 3)
            for pid in (worker, creator):
                os.kill(pid, signal.SIGSTOP)
        futures = [model.submit(x=_X) for _ in range(5)]
        assert [future.result(BOUND_S)["y"].sum() for future in futures] == [32] * 5
        assert load.result(BOUND_S).run(x=_X[:2, :4])["y"].sum() == 8
        assert not any(is_alive(pid) for pid in (worker, creator))
        assert pool.stats()["workers_lost"] == 1


@pytest.mark.slow
def test_a_stopped_preloaded_fork_server_is_replaced_and_the_load_succeeds(
    private: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER, raising=False)  # so that it imports the compiler, which takes its time
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
        raise RuntimeError("no call waits for this any more")

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


def test_a_run_that_takes_too_long_is_an_error_that_names_model_and_setting_and_a_function_may_take_longer(
    private: dict[str, Any], tmp_path: Path
) -> None:
    with poolrt.Pool(workers=2, threads=1, run_timeout_s=0.5, retries=1, **private) as pool:
        small = pool.load(relu_graph())
        graph = poolrt.Graph("endless")
        value = graph.input("x", (1024, 1024), "float32")
        for _ in range(2000):  # 10 s and more
            value = graph.matmul(value, value)
        graph.output("y", value)
        model = pool.load(graph)
        # Given a function on the one worker that ends after the runs on the other
        function = pool.submit(exec, until_there(tmp_path / "end"))
        wait_until(lambda: pool.stats()["queue"]["in_flight"] == 1, "the function is under way")
        with pytest.raises(WorkerLost, match=r"endless.*2000 steps.*run_timeout_s") as caught:
            model.run(x=np.ones((1024, 1024), np.float32))
        assert (caught.value.what, caught.value.attempts) == ("endless", 2)
        # The worker that comes up next is as good as the one before.
        assert small.run(x=_X)["y"].sum() == 32
        assert not function.done()
        (tmp_path / "end").touch()
        function.result(BOUND_S)
        assert pool.stats()["workers_lost"] == 2


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
