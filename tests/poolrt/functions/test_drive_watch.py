"""When the thread of futures drives the rings of calls: if no other thread has for a while, nor waits for results."""

from __future__ import annotations

import time

from poolrt.functions.drive_watch import TICK_S, DriveWatch


def test_the_thread_of_futures_drives_once_no_thread_has_for_a_while() -> None:
    watch = DriveWatch()
    # Given calls after a long time without any, which the thread of futures is woken for
    watch.look(outstanding=True, waits=False)
    assert not watch.adopted
    assert watch.next_look(lambda: 1) == TICK_S
    watch.look(outstanding=True, waits=False)
    assert not watch.adopted
    # When nothing drives
    time.sleep(TICK_S)
    watch.look(outstanding=True, waits=False)
    # Then it does, until another thread does
    assert watch.adopted
    watch.drives += 1
    watch.look(outstanding=True, waits=False)
    assert not watch.adopted


def test_the_thread_of_futures_leaves_rings_to_a_thread_that_waits_for_long() -> None:
    watch = DriveWatch()
    assert watch.next_look(lambda: 1) == TICK_S
    for _ in range(3):
        watch.look(outstanding=True, waits=True)
        assert not watch.adopted
        time.sleep(TICK_S)
    watch.look(outstanding=True, waits=True)
    assert not watch.adopted


def test_the_thread_of_futures_drives_nothing_without_calls() -> None:
    watch = DriveWatch()
    assert watch.next_look(lambda: 1) == TICK_S
    time.sleep(TICK_S)
    watch.look(outstanding=False, waits=False)
    assert not watch.adopted
    watch.look(outstanding=True, waits=False)
    assert not watch.adopted
