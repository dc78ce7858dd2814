"""When a worker dozes after calls: not beside a client that waits for each."""

from __future__ import annotations

import pytest

from poolrt.workers.processes.call_row import CallRow


def _dozes(row: CallRow, count: int, now: float, *, unread: bool = True, waits: bool = False) -> bool:
    """Make calls, then sleep; return whether that is a doze."""
    row.begin(now, unread=unread)
    if waits:
        row.interrupt()
    row.end(count, now)
    return row.sleep()


def test_a_worker_dozes_after_four_calls_without_a_sleep() -> None:
    row = CallRow()
    assert not _dozes(row, 3, 1.0, unread=False)
    assert _dozes(row, 4, 2.0, unread=False, waits=True)
    assert not _dozes(row, 1, 3.0, unread=False)


def test_a_worker_that_is_woken_for_each_call_of_a_row_dozes() -> None:
    row = CallRow()
    assert [_dozes(row, 1, 1 + number * 1e-5) for number in range(6)] == [False, False, False, True, True, True]


@pytest.mark.parametrize("waits", [False, True])
def test_a_worker_of_a_client_that_waits_for_each_call_never_dozes(waits: bool) -> None:
    row = CallRow()
    assert not any(_dozes(row, 1, 1 + number * 1e-5, unread=waits, waits=waits) for number in range(20))


def test_calls_apart_are_no_row() -> None:
    row = CallRow()
    assert not any(_dozes(row, 1, 1 + number * 1e-3) for number in range(20))


def test_a_doze_in_which_nothing_came_is_the_last_one() -> None:
    row = CallRow()
    assert _dozes(row, 4, 1.0)
    assert not row.sleep()
    assert not _dozes(row, 1, 1.00001)
