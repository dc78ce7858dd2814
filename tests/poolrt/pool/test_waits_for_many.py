"""`concurrent.futures.wait` and `as_completed` while another thread waits for a later call, with results that nobody has read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, as_completed, wait
from pathlib import Path
from typing import Any

import pytest

import poolrt

from .processes import BOUND_S, until_there, wait_until


def _some(futures: list[Future[Any]]) -> set[Future[Any]]:
    return wait(futures, BOUND_S, FIRST_COMPLETED).done


@pytest.mark.parametrize(
    ("find", "least"),
    [
        (lambda futures: wait(futures, BOUND_S, ALL_COMPLETED).done, 3),
        (_some, 1),
        (lambda futures: {*as_completed(futures, BOUND_S)}, 3),
    ],
    ids=["wait", "first", "as completed"],
)
def test_results_that_are_there_are_found(
    settings: dict[str, Any],
    tmp_path: Path,
    find: Callable[[list[Future[Any]]], set[Future[Any]]],
    least: int,
) -> None:
    begin, begun, end = tmp_path / "begin", tmp_path / "begun", tmp_path / "end"
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        rings = pool._session.link.client.calls
        wait_until(lambda: pool.submit(exec, "").result(BOUND_S) is None and rings.exist, "calls are on a ring")
        futures = [pool.submit(exec, until_there(begin))] + [pool.submit(exec, "") for _ in range(2)]
        last = pool.submit(exec, f"open({str(begun)!r}, 'w').close()\n" + until_there(end))
        # The worker rings for the last call only, which this thread waits for.
        thread = threading.Thread(target=last.result, args=(BOUND_S,))
        thread.start()
        wait_until(lambda: rings._polling, "the thread sleeps")
        begin.touch()
        wait_until(begun.exists, "the last call has begun, so the others have ended")
        assert len(find(futures)) >= least
        assert not last.done()
        end.touch()
        thread.join(BOUND_S)
        assert not thread.is_alive()
        assert last.done()
