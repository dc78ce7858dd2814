"""A call on a ring that one thread waits for and another one cancels."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import poolrt

from .processes import BOUND_S, until_there, wait_until


@pytest.mark.parametrize("way", ["result", "exception", "map", "map and shutdown"])
@pytest.mark.one_in(2)
def test_a_thread_that_waits_for_a_call_learns_that_another_one_has_cancelled_it(
    settings: dict[str, Any], tmp_path: Path, way: str
) -> None:
    end = tmp_path / "end"
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        client = pool._session.link.client
        # Given a call on a ring that waits for a longer one before it
        for function, argument in ((abs, -1), (exec, "pass")):
            wait_until(lambda f=function, a=argument: _is_on_ring(pool, f, a), "the function is called on the ring")  # type: ignore[misc]
        holding = pool.submit(exec, until_there(end))
        wait_until(holding.running, "the worker is busy")
        waits: Callable[[], object]
        if way.startswith("map"):
            mapped: Any = pool.map(abs, [-1, -2])
            waiting, waits = mapped._futures[0], partial(next, mapped)
        else:
            waiting = pool.submit(abs, -1)
            waits = getattr(waiting, way)
        raised: list[BaseException] = []
        thread = threading.Thread(target=_note_error, args=(waits, raised), daemon=True)
        thread.start()
        wait_until(lambda: client.calls._polling, "the thread waits")
        # When it is cancelled
        if way == "map and shutdown":
            pool.shutdown(wait=False, cancel_futures=True)
        else:
            assert waiting.cancel()
        # Then the thread does not wait for the longer one
        thread.join(BOUND_S)
        assert not thread.is_alive()
        assert [type(error) for error in raised] == [CancelledError]
        assert not holding.done()
        end.touch()
        assert holding.result(BOUND_S) is None


def _is_on_ring(pool: poolrt.Pool, function: Callable[..., object], argument: object) -> bool:
    rings = pool._session.link.client.calls._rings.values()
    before = [ring.ring.submitted for ring in rings]
    for _ in range(4):
        pool.submit(function, argument).result(BOUND_S)
    return [ring.ring.submitted for ring in rings] == [count + 4 for count in before] != []


def _note_error(waits: Callable[[], object], raised: list[BaseException]) -> None:
    try:
        waits()
    except BaseException as error:  # noqa: BLE001 - compared by the caller
        raised.append(error)
