"""Killed processes: workers, fork servers, coordinator, clients. Results stay right, errors are clear, nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import CoordinatorLost, PoolClosed, WorkerLost

from .processes import (
    BOUND_S,
    children,
    command,
    cpu_seconds,
    descendants,
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
    kept = 20 * (64 * 64 * 4 + 4096)  # inputs kept for later
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


def test_a_killed_coordinator_is_a_clear_error_for_everyone_and_takes_its_processes_with_it(
    settings: dict[str, Any],
) -> None:
    before = set(family())
    pool = poolrt.Pool(workers=2, **settings)
    model = pool.load(relu_graph())
    workers_of(pool)
    x = np.ones((4, 8), np.float32)
    kept = model.run(x=x)["y"]
    sleeping = pool.submit(time.sleep, 60)
    everyone = set(family()) - before
    os.kill(pool.stats()["pid"], signal.SIGKILL)
    with pytest.raises(CoordinatorLost, match="coordinator has exited"):
        sleeping.result(BOUND_S)
    for attempt in (lambda: model.run(x=x), lambda: model.submit(x=x), pool.stats, lambda: pool.load(relu_graph())):
        with pytest.raises(CoordinatorLost):
            attempt()
    wait_until(lambda: not any(is_alive(pid) for pid in everyone), "all processes are gone", seconds=1.0)
    assert kept.sum() == 32  # what one has stays
    pool.close()
    assert set(family()) - before == set()


_CLIENT = """
    import os, sys, time
    import numpy as np
    import poolrt
    graph = poolrt.Graph("g")
    graph.output("y", graph.eltwise(graph.input("x", (512, 512), "float32"), "relu"))
    pool = poolrt.Pool(workers=2, home=sys.argv[1], redis_url="unix:///nowhere/none.sock", arena_bytes=64 << 20)
    model = pool.load(graph)
    arrays = [model.run(x=np.ones((512, 512), np.float32))["y"] for _ in range(5)]
    pool.submit(time.sleep, 60)
    large = poolrt.Graph("large")
    value = large.input("x", (64,), "float32")
    for _ in range(8000 if sys.argv[2] == "load" else 1):
        value = large.eltwise(value, "tanh")
    large.output("y", value)
    if sys.argv[2] == "fork" and os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    print("ready", flush=True)
    if sys.argv[2] == "load":
        pool.load(large)
    if sys.argv[2] == "exit":
        sys.exit(0)
    if sys.argv[2] == "sleep":
        with pool:
            pool.submit(time.sleep, 60).result()
    for _ in model.map({"x": arrays[0]} for _ in iter(int, 1)):
        pass
"""


def _client(settings: dict[str, Any], how: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a client program, wait until it is at work, and return it with all processes below it."""
    words = [sys.executable, "-c", textwrap.dedent(_CLIENT), settings["home"], how]
    client = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    below = descendants(client.pid)
    assert len(below) >= 1
    return client, below


@pytest.mark.parametrize("how", ["run", "fork", "load"])
def test_when_a_client_is_killed_everything_of_its_pool_is_gone_within_a_second(
    settings: dict[str, Any], how: str
) -> None:
    client, below = _client(settings, how)
    poolish = [pid for pid in below if "poolrt.coordinator" in command(pid)]
    assert len(poolish) >= 3  # coordinator, fork server and workers, which are its forks
    if how == "load":
        (coordinator,) = set(poolish) & set(children(client.pid))
        before = cpu_seconds(coordinator)
        wait_until(lambda: cpu_seconds(coordinator) > before + 0.2, "it lowers the graph, which takes seconds")
    client.kill()
    client.wait(BOUND_S)
    wait_until(
        lambda: not any(is_alive(pid) for pid in poolish), "coordinator, workers and arena are gone", seconds=1.0
    )
    for pid in set(below) - set(poolish):
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)  # the client's own fork, which is the client's business
    client.communicate()


def test_an_interrupted_client_ends_at_once_with_its_pool(settings: dict[str, Any]) -> None:
    client, below = _client(settings, "sleep")
    client.send_signal(signal.SIGINT)
    _, errors = client.communicate(timeout=BOUND_S)
    assert "KeyboardInterrupt" in errors
    assert "Error" not in errors.replace("KeyboardInterrupt", "")
    wait_until(lambda: not any(is_alive(pid) for pid in below), "all processes are gone", seconds=1.0)


def test_a_client_that_never_closes_its_pool_leaves_nothing_behind_either(settings: dict[str, Any]) -> None:
    client, below = _client(settings, "exit")
    _, errors = client.communicate(timeout=BOUND_S)
    assert client.returncode == 0
    assert errors == ""
    wait_until(lambda: not any(is_alive(pid) for pid in below), "all processes are gone", seconds=1.0)


def test_leaving_the_pool_with_work_under_way_takes_no_longer_than_two_seconds(settings: dict[str, Any]) -> None:
    before = set(family())
    with poolrt.Pool(workers=2, **settings) as pool:
        pool.load(relu_graph())
        futures = [pool.submit(time.sleep, 60) for _ in range(5)]
        started = time.monotonic()
    assert time.monotonic() - started < 2
    for future in futures:
        with pytest.raises(PoolClosed, match="closed"):
            future.result(BOUND_S)
    assert set(family()) - before == set()
    pool.close()  # may be repeated


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


def test_a_fork_of_the_client_cannot_use_the_pool_and_does_not_disturb_it(own: poolrt.Pool) -> None:
    model = own.load(relu_graph())
    x = np.ones((4, 8), np.float32)
    y = model.run(x=x)["y"]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            try:
                model.run(x=x)
            except PoolClosed:
                code = 0 if y.sum() == 32 else 2
            own.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert model.run(x=x)["y"].sum() == 32


def test_wrong_settings_are_refused_and_start_nothing(settings: dict[str, Any]) -> None:
    before = set(family())
    for wrong in ({"workers": -1}, {"no_such_setting": 1}, {"engine": "cuda"}):
        with pytest.raises(poolrt.settings.SettingsError):
            poolrt.Pool(**{**settings, **wrong})
    assert set(family()) - before == set()
