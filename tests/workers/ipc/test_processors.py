"""Spins: never beside a peer on the same processor or one that does not say where it is, and never longer than allowed."""

from __future__ import annotations

import os
import time

from poolrt.workers.ipc.processors import Spin


def test_a_side_that_does_not_spin_does_not_say_where_it_is() -> None:
    assert not Spin(0)
    assert Spin(0).here() == 0
    assert Spin(1).here() > 0


def test_a_spin_looks_once_beside_a_peer_on_the_same_processor_or_an_unknown_one() -> None:
    spin, before = Spin(1000), os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        for peer in (spin.here, lambda: 0):
            looks: list[int] = []

            def look(looks: list[int] = looks) -> bool:
                looks.append(1)
                return False

            assert not spin.until(look, peer)
            assert len(looks) == 1
    finally:
        os.sched_setaffinity(0, before)


def test_a_spin_ends_when_the_condition_holds_or_the_peer_comes_or_the_time_is_over() -> None:
    spin = Spin(1_000_000)
    looks: list[int] = []

    def look() -> bool:
        looks.append(1)
        return len(looks) == 500

    assert spin.until(look, lambda: spin.here() + 1)
    assert len(looks) == 500
    places = [spin.here() + 1] * 3 + [0] * 100
    assert not spin.until(lambda: False, lambda: places.pop(0))
    assert len(places) == 99
    spin = Spin(1000)
    begin = time.perf_counter()
    assert not spin.until(lambda: False, lambda: spin.here() + 1)
    assert time.perf_counter() - begin >= 0.001
