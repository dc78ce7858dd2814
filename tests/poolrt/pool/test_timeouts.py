"""Runs with a timeout: they end in time, by messages and on rings, and leave a pool that works."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import poolrt

from .processes import relu_graph, wait_until, workers_of

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
