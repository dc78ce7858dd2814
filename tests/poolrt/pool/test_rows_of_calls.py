"""Many short calls, after which a worker dozes and a client expects others to be short: nothing is late or lost by that."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextvars import Context, ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import poolrt

from .processes import BOUND_S, wait_until


@pytest.fixture
def lone_pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    """A pool of one worker."""
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        yield pool


def _sleep(seconds: float) -> float:
    if seconds:
        time.sleep(seconds)
    return seconds


def _wait_for(path: str) -> str:
    """Return once there is such a file; at once if it has no name."""
    until = time.monotonic() + 2 * BOUND_S
    while path and not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.005)
    return path


def _append(path: str, text: str) -> str:
    with open(path, "a") as file:
        file.write(text)
    return text


def _ends_with(path: Path, text: str) -> bool:
    return path.read_text().endswith(text)


def _has_row(pool: poolrt.Pool, call: Any, value: Any) -> bool:
    """Call a function often; return whether it was called on a ring."""
    assert [*pool.map(call, [value] * 200)] == [value] * 200
    rings = pool._session.link.client.calls._rings
    return any(ring.ring.submitted > 100 for ring in rings.values())


def test_a_call_after_a_row_begins_although_nothing_waits_for_it(lone_pool: poolrt.Pool, tmp_path: Path) -> None:
    path = tmp_path / "calls"
    append = partial(_append, str(path))
    wait_until(partial(_has_row, lone_pool, append, "a"), "the function is called on a ring")
    for number in range(5):
        assert {*lone_pool.map(append, ["a"] * 200)} == {"a"}
        future = lone_pool.submit(append, f"b{number}")
        wait_until(partial(_ends_with, path, f"b{number}"), "the function is called", 5)
        assert future.result(BOUND_S) == f"b{number}"


def test_a_result_does_not_wait_for_long_calls_behind_it(lone_pool: poolrt.Pool, tmp_path: Path) -> None:
    wait_until(partial(_has_row, lone_pool, _wait_for, ""), "the function is called on a ring")
    for number in range(3):
        assert {*lone_pool.map(_wait_for, [""] * 300)} == {""}  # the worker is known to be fast
        first, last = tmp_path / f"{number} first", tmp_path / f"{number} last"
        paths = ["", str(first), "", "", str(last)]
        futures = [lone_pool.submit(_wait_for, path) for path in paths]
        assert futures[0].result(BOUND_S) == ""
        first.touch()
        assert [future.result(BOUND_S) for future in futures[1:4]] == paths[1:4]
        last.touch()
        assert futures[4].result(BOUND_S) == paths[4]


def test_others_that_wait_for_futures_after_a_row_get_them(lone_pool: poolrt.Pool) -> None:
    wait_until(partial(_has_row, lone_pool, _sleep, 0), "the function is called on a ring")
    for _ in range(10):
        futures = [lone_pool.submit(_sleep, 0) for _ in range(20)]
        done, others = wait(futures, BOUND_S)
        assert len(done) == 20
        assert not others


def _processors(number: int) -> set[int]:
    return os.sched_getaffinity(0)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a processor can be left out of several only")
def test_a_worker_dozes_on_other_processors_than_its_client_and_calls_functions_on_all(lone_pool: poolrt.Pool) -> None:
    whole = os.sched_getaffinity(0)
    wait_until(partial(_has_row, lone_pool, _sleep, 0), "the function is called on a ring")
    (worker,) = [each["pid"] for each in lone_pool.stats()["workers"]]
    client = min(whole)
    os.sched_setaffinity(0, {client})
    try:

        def is_apart() -> bool:
            found = [*lone_pool.map(_processors, range(100))]
            assert all(each == whole for each in found)
            return any(os.sched_getaffinity(worker) == whole - {client} for _ in range(50))

        wait_until(is_apart, "the worker sleeps on another processor")
    finally:
        os.sched_setaffinity(0, whole)
    wait_until(lambda: os.sched_getaffinity(worker) == whole, "the set is whole again")


def test_finalizers_of_ended_calls_may_submit_others(lone_pool: poolrt.Pool) -> None:
    wait_until(partial(_has_row, lone_pool, _sleep, 0), "the function is called on a ring")
    for _ in range(20):
        lone_pool.submit(_sleep, 0).result(BOUND_S)
    variable: ContextVar[Any] = ContextVar("variable")
    found: list[Any] = []

    class Calling:
        def __del__(self) -> None:
            found.append(lone_pool.submit(_sleep, 0))

    def submit() -> Any:
        variable.set(Calling())  # the call has the last reference to the context
        return lone_pool.submit(_sleep, 0)

    def submit_all() -> None:
        futures = [Context().run(submit) for _ in range(200)]
        assert [each.result() for each in futures] == [0] * 200

    thread = threading.Thread(target=submit_all, daemon=True)
    thread.start()
    thread.join(BOUND_S)
    assert not thread.is_alive()
    wait_until(lambda: len(found) == 200, "all finalizers have run")
    assert [each.result(BOUND_S) for each in found] == [0] * 200
