"""Iterators of `Model.map` that the collector drops in the middle of other work of the same pool, as it may."""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import poolrt
from tests.at_lines import at_each_line

from .prepared import X, load, places_of, rings_of
from .processes import relu_graph, wait_until

#: What holds locks of a connection.
_TRACED = ("runs/", "connection/", "memory/")
#: Seconds after which a process that hangs is ended by SIGALRM.
BOUND_S = 20


@pytest.fixture(scope="module")
def pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        yield pool


def begun(model: Any, value: Any = X) -> Iterator[dict[str, Any]]:
    """Return the iterator of a map that is in the middle of its runs."""
    mapped: Iterator[dict[str, Any]] = model.map(({"x": value} for _ in itertools.count()), 16)
    for _ in range(3):
        np.testing.assert_array_equal(next(mapped)["y"], np.maximum(value, 0))
    return mapped


def leave_in_a_cycle(found: object) -> None:
    """Leave an object to the collector."""
    cycle: list[object] = [found]
    cycle.append(cycle)


def collected_at_each_line(model: Any, work: Callable[[], object], step: int) -> int:
    """Have the collector drop an iterator of the model in each ``step``-th line of some work; return how many lines there are."""

    def work_amid_garbage() -> None:
        work()
        leave_in_a_cycle(begun(model))

    leave_in_a_cycle(begun(model))
    return at_each_line(work_amid_garbage, gc.collect, *_TRACED, step=step)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Let the collector run only when it is called."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("way", ["run", "submit", "map"])
def test_a_map_that_is_collected_in_any_line_of_other_runs_holds_up_nothing(pool: poolrt.Pool, way: str) -> None:
    model = load(pool)

    def work() -> None:
        if way == "run":
            outputs = model.run(x=X)
        elif way == "submit":
            outputs = model.submit(x=X).result()
        else:
            outputs = [*model.map({"x": X} for _ in range(3))][-1]
        np.testing.assert_array_equal(outputs["y"], np.maximum(X, 0))

    work()
    assert collected_at_each_line(model, work, 3) > 20
    gc.collect()

    def is_idle() -> bool:
        model.run(x=X)  # one of them looks after what was abandoned
        return not (
            any(map(under_way, rings_of(pool))) or any(each for places in places_of(model) for each in places._held)
        )

    wait_until(is_idle, "nothing is under way")
    model.close()


@pytest.mark.usefixtures("uncollected")
def test_a_map_of_split_runs_that_is_collected_in_any_line_of_other_runs_holds_up_nothing(pool: poolrt.Pool) -> None:
    model: Any = pool.load(relu_graph(), split_batch=True)

    def work() -> None:
        np.testing.assert_array_equal(model.run(x=X)["y"], np.maximum(X, 0))

    work()
    assert collected_at_each_line(model, work, 17) > 20
    work()
    model.close()


@pytest.mark.usefixtures("uncollected")
def test_a_map_that_is_dropped_outside_of_the_pool_is_withdrawn_at_once(pool: poolrt.Pool) -> None:
    model = load(pool)
    for drop in (lambda mapped: mapped.close(), lambda mapped: None):
        drop(begun(model))
        assert all(held is None for places in places_of(model) for held in places._held)
    leave_in_a_cycle(begun(model))
    gc.collect()
    assert all(held is None for places in places_of(model) for held in places._held)
    assert not pool._session.client.abandoned
    model.close()


# Python 3.12 warns of threads at a fork; there may be some.
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_map_that_a_forked_process_drops_goes_on_in_its_parent(pool: poolrt.Pool) -> None:
    model = load(pool)
    mapped: Iterator[dict[str, Any]] | None = begun(model)
    assert mapped is not None
    with ExitStack() as stack:
        for ring in rings_of(pool):
            stack.enter_context(ring.lock)  # as if another thread had it
        pid = os.fork()
        if pid == 0:
            signal.alarm(BOUND_S)
            mapped = None
            gc.collect()
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    for _ in range(40):
        np.testing.assert_array_equal(next(mapped)["y"], np.maximum(X, 0))
    mapped.close()  # type: ignore[attr-defined]
    model.close()


def under_way(ring: Any) -> int:
    ring.look()
    return len(ring.under_way)
