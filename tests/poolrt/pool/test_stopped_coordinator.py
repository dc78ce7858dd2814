"""A coordinator that is stopped instead of ended: its clients notice, and one that is only busy or idle is not lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import CoordinatorLost

from .processes import BOUND_S, family, relu_graph

#: Silence after which a coordinator is lost to its client here, in seconds.
SILENCE_S = 1.0
_X = np.ones((4, 8), np.float32)


@pytest.fixture
def stoppable(settings: dict[str, Any]) -> Iterator[tuple[poolrt.Pool, poolrt.Model, int]]:
    """A pool, a model of it, and its coordinator's process, which a test may stop; nothing is left of them."""
    before = set(family())
    with poolrt.Pool(workers=1, threads=1, coordinator_timeout_s=SILENCE_S, **settings) as pool:
        yield pool, pool.load(relu_graph()), pool.stats()["pid"]
    assert set(family()) - before == set()


def test_every_wait_for_a_stopped_coordinator_ends_with_an_error_in_time(
    stoppable: tuple[poolrt.Pool, poolrt.Model, int],
) -> None:
    pool, model, coordinator = stoppable
    waits: list[Callable[[], object]] = [
        lambda: model.run(x=_X),
        lambda: model.submit(x=_X).result(BOUND_S),
        lambda: list(model.map({"x": _X} for _ in range(3))),
        lambda: pool.submit(os.getpid).result(BOUND_S),
        lambda: pool.load(relu_graph((2, 2))),
        lambda: pool.stats(),
    ]
    os.kill(coordinator, signal.SIGSTOP)
    begin = time.monotonic()
    with ThreadPoolExecutor(len(waits)) as threads:
        errors = [threads.submit(wait).exception(BOUND_S) for wait in waits]
    # Guaranteed is the silence alone; the rest is for a busy machine.
    assert SILENCE_S / 2 < time.monotonic() - begin < SILENCE_S + BOUND_S / 4
    for error in errors:
        assert isinstance(error, CoordinatorLost)
        assert "no sign of life for 1 s (the setting coordinator_timeout_s)" in str(error)


@pytest.mark.slow
def test_sending_more_than_a_stopped_coordinator_reads_ends_with_it_too(
    stoppable: tuple[poolrt.Pool, poolrt.Model, int],
) -> None:
    pool, _, coordinator = stoppable
    os.kill(coordinator, signal.SIGSTOP)
    with pytest.raises(CoordinatorLost, match="no sign of life"):
        for _ in range(100_000):
            pool.submit(bytes, 100_000)


def test_a_coordinator_with_nothing_to_say_and_one_stopped_for_a_moment_are_not_lost(
    stoppable: tuple[poolrt.Pool, poolrt.Model, int],
) -> None:
    pool, model, coordinator = stoppable
    # It has nothing to say while a function runs, whether the client waits with a limit or without
    pool.submit(time.sleep, 2.5 * SILENCE_S).result()
    with pytest.raises(TimeoutError):
        pool.submit(time.sleep, 2 * SILENCE_S).result(1.5 * SILENCE_S)
    # And goes on where it was stopped
    os.kill(coordinator, signal.SIGSTOP)
    later = threading.Timer(0.3 * SILENCE_S, os.kill, (coordinator, signal.SIGCONT))
    later.start()
    assert model.run(x=_X)["y"].sum() == 32
    later.join(BOUND_S)
