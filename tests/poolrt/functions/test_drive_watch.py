"""When the thread of futures drives the rings of calls: if no other thread has for a while, nor waits for results."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from poolrt.functions import drive_watch
from poolrt.functions.drive_watch import TICK_S, DriveWatch


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that moves the clock of the watch forward; otherwise that clock stands still."""
    now = [100.0]
    monkeypatch.setattr(drive_watch, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def sleep(seconds: float) -> None:
        now[0] += seconds + 1e-6  # as a sleep, it never lasts exactly so long

    return sleep


def _looks(watch: DriveWatch, *, outstanding: bool = True, waits: bool = False) -> bool:
    """Look; return whether the thread of futures drives then."""
    watch.look(outstanding=outstanding, waits=waits)
    return watch.adopted


def test_the_thread_of_futures_drives_once_no_thread_has_for_a_while(sleep: Callable[[float], None]) -> None:
    watch = DriveWatch()
    # Given calls after a long time without any, which the thread of futures is woken for
    assert not _looks(watch)
    assert watch.next_look(lambda: 1) == TICK_S
    assert not _looks(watch)
    # When nothing drives
    sleep(TICK_S)
    # Then it does, until another thread does
    assert _looks(watch)
    watch.drives += 1
    assert not _looks(watch)


def test_the_thread_of_futures_leaves_rings_to_a_thread_that_waits_for_long(sleep: Callable[[float], None]) -> None:
    watch = DriveWatch()
    assert watch.next_look(lambda: 1) == TICK_S
    for _ in range(3):
        assert not _looks(watch, waits=True)
        sleep(TICK_S)
    assert not _looks(watch, waits=True)


def test_the_thread_of_futures_drives_nothing_without_calls(sleep: Callable[[float], None]) -> None:
    watch = DriveWatch()
    assert watch.next_look(lambda: 1) == TICK_S
    sleep(TICK_S)
    assert not _looks(watch, outstanding=False)
    assert not _looks(watch)
