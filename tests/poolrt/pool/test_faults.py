"""Workers and fork servers that are killed, clients that are interrupted: results stay right, and errors are clear."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import WorkerLost
from poolrt.memory.arena import slot_size
from poolrt.settings import SettingsError

from .processes import (
    BOUND_S,
    family,
    is_alive,
    relu_graph,
    until_there,
    wait_until,
    workers_of,
)

#: Steps of a model whose run takes tens of milliseconds at least.
STEPS = 200


@pytest.fixture
def own(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    """A pool of two workers for one test, which leaves no process behind."""
    before = set(family())
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        yield pool
    assert set(family()) - before == set()


def test_killing_each_worker_in_turn_under_two_hundred_runs_changes_no_result(own: poolrt.Pool) -> None:
    model = own.load(relu_graph((64, 64)))
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal((64, 64)).astype(np.float32) for _ in range(200)]
    first = workers_of(own)
    futures = []
    for number, x in enumerate(inputs):
        futures.append(model.submit(x=x))
        if number in (50, 100):
            os.kill(first[number // 50 - 1], signal.SIGKILL)
    for x, future in zip(inputs, futures, strict=True):
        np.testing.assert_array_equal(future.result(BOUND_S)["y"], np.maximum(x, 0))
    assert len(workers_of(own, killed=first)) == 2
    stats = own.stats()
    assert stats["workers_lost"] == 2
    assert all(not is_alive(pid) for pid in first)


def test_memory_that_dead_workers_used_is_given_back(own: poolrt.Pool) -> None:
    model = own.load(relu_graph((64, 64)))
    x = np.ones((64, 64), np.float32)
    model.run(x=x)
    before = own.stats()["arena"]["used"]
    killed: list[int] = []
    for _ in range(3):
        futures = [model.submit(x=x) for _ in range(20)]
        killed.append(workers_of(own, killed)[0])
        os.kill(killed[-1], signal.SIGKILL)
        assert all(future.result(BOUND_S)["y"].sum() == 64 * 64 for future in futures)
        futures.clear()
    # Inputs that are kept for later, and four prepared places on each of two rings and one that was lost.
    kept = 20 * (64 * 64 * 4 + 4096) + 3 * slot_size(4 * 2 * 64 * 64 * 4)
    assert own.stats()["arena"]["used"] <= before + kept


def test_a_model_that_kills_every_worker_is_an_error_that_names_it(own: poolrt.Pool) -> None:
    # Given a model whose runs take so long that each is seen under way
    graph = poolrt.Graph("murderous")
    value = graph.input("x", (1024, 1024), "float32")
    for _ in range(STEPS):
        value = graph.eltwise(value, "relu")
    graph.output("y", value)
    model = own.load(graph)
    x = np.ones((1024, 1024), np.float32)
    stop = threading.Event()
    doomed: set[int] = set()

    def kill_all() -> None:
        while not stop.is_set():
            for worker in own.stats()["workers"]:
                if worker["pid"] not in doomed and worker["state"] == "busy":
                    doomed.add(worker["pid"])
                    os.kill(worker["pid"], signal.SIGKILL)

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        lost = None
        until = time.monotonic() + BOUND_S
        while lost is None and time.monotonic() < until:
            try:
                model.run(x=x)
            except WorkerLost as error:
                lost = error
    finally:
        stop.set()
        killer.join(BOUND_S)
    assert not killer.is_alive()
    assert lost is not None
    assert (lost.what, lost.steps, lost.attempts) == ("murderous", STEPS, 3)
    # Nothing is spoilt: with the killing over, the same model runs.
    assert model.run(x=x)["y"].sum() == 1 << 20


def test_a_killed_fork_server_is_replaced_and_takes_no_run_with_it(own: poolrt.Pool) -> None:
    model = own.load(relu_graph())
    x = np.ones((4, 8), np.float32)
    workers = workers_of(own)
    fork_server = int(Path(f"/proc/{workers[0]}/stat").read_text().rpartition(")")[2].split()[1])
    futures = [model.submit(x=x) for _ in range(50)]
    os.kill(fork_server, signal.SIGKILL)
    futures += [model.submit(x=x) for _ in range(50)]
    for future in futures:
        assert future.result(BOUND_S)["y"].sum() == 32
    workers_of(own, killed=workers)
    assert not any(is_alive(pid) for pid in [fork_server, *workers])


def test_an_interruption_of_a_wait_leaves_the_pool_usable(own: poolrt.Pool, tmp_path: Path) -> None:
    model = own.load(relu_graph())
    x = np.ones((4, 8), np.float32)
    before = own.stats()["arena"]["used"]
    busy = [own.submit(exec, until_there(tmp_path / "end")) for _ in range(2)]
    wait_until(lambda: own.stats()["queue"]["in_flight"] == 2, "both workers are at work")

    def interrupt() -> None:
        """Interrupt the main thread once it waits for a run that no worker has room for."""
        wait_until(lambda: own.stats()["queue"]["waiting"] == 1, "the run waits")
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        interrupting.start()
        model.run(x=x)  # waits for the functions
    interrupting.join(BOUND_S)
    (tmp_path / "end").touch()
    for future in busy:
        future.result(BOUND_S)
    assert model.run(x=x)["y"].sum() == 32
    wait_until(lambda: own.stats()["arena"]["used"] <= before + 1024, "what the interrupted run gave is free")


def test_wrong_settings_are_refused_and_start_nothing(settings: dict[str, Any]) -> None:
    before = set(family())
    for wrong in ({"workers": -1}, {"no_such_setting": 1}, {"engine": "cuda"}):
        with pytest.raises(SettingsError):
            poolrt.Pool(**{**settings, **wrong})
    assert set(family()) - before == set()
