"""The ends of pools: whether left, interrupted or killed with their client, all of their processes are gone within seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import CoordinatorLost, PoolClosed

from .processes import (
    BOUND_S,
    below,
    children,
    command,
    cpu_seconds,
    descendants,
    family,
    is_alive,
    relu_graph,
    wait_until,
    workers_of,
)


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
    pool.submit(time.sleep, 0.5 if sys.argv[2] == "exit" else 60)
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
    until = time.monotonic() + 120  # a test that fails does not leave it running
    for _ in model.map({"x": arrays[0]} for _ in iter(lambda: time.monotonic() > until, True)):
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


def _cpu_seconds_of_all(pid: int) -> float:
    """Return the seconds that a process and all below it have computed."""
    return sum(cpu_seconds(each) for each in (pid, *descendants(pid)))


@pytest.mark.parametrize("how", ["run", "fork", "load"])
def test_when_a_client_is_killed_everything_of_its_pool_is_gone_within_a_second(
    settings: dict[str, Any], how: str
) -> None:
    client, below = _client(settings, how)
    poolish = [pid for pid in below if "poolrt.coordinator" in command(pid)]
    assert len(poolish) >= 3  # coordinator, fork server and workers, which are its forks
    if how == "load":
        (coordinator,) = set(poolish) & set(children(client.pid))
        before = _cpu_seconds_of_all(coordinator)
        wait_until(lambda: _cpu_seconds_of_all(coordinator) > before + 0.2, "it lowers the graph, which takes seconds")
        poolish = sorted({*poolish, *descendants(coordinator)})  # a process of its own lowers so large a graph
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


def test_closing_the_pool_with_work_under_way_takes_no_longer_than_two_seconds(settings: dict[str, Any]) -> None:
    before = set(family())
    with poolrt.Pool(workers=2, **settings) as pool:
        pool.load(relu_graph())
        futures = [pool.submit(time.sleep, 60) for _ in range(5)]
        started = time.monotonic()
        pool.close()
    assert time.monotonic() - started < 2
    for future in futures:
        with pytest.raises(PoolClosed, match="closed"):
            future.result(BOUND_S)
    assert set(family()) - before == set()
    pool.close()  # may be repeated


def test_a_pool_whose_processes_are_all_stopped_still_closes_in_time(settings: dict[str, Any]) -> None:
    before = set(family())
    pool = poolrt.Pool(workers=2, **settings)
    everyone = [*workers_of(pool), *below(pool.stats()["pid"], 1)]
    for pid in everyone:
        os.kill(pid, signal.SIGSTOP)
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 5
    wait_until(lambda: not any(is_alive(pid) for pid in everyone), "all processes are gone", seconds=1.0)
    assert set(family()) - before == set()
