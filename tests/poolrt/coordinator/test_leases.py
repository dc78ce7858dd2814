"""Leases: a slot is free exactly when its last holder has let go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.coordinator.leases import Leases, NotHeld
from poolrt.memory.arena import Allocator, ArenaExhausted


def test_a_slot_is_free_when_its_last_holder_lets_go() -> None:
    leases = Leases(Allocator(1 << 20))
    (offset,) = leases.take([100], "client")
    leases.share(offset, "run")
    leases.end("client")
    assert leases.allocator.used > 0
    leases.release(offset, "run")
    assert leases.allocator.used == 0
    assert leases.holders() == []


def test_taking_several_slots_takes_all_or_none() -> None:
    leases = Leases(Allocator(1 << 20))
    with pytest.raises(ArenaExhausted):
        leases.take([1000, 1000, 2 << 20], "client")
    assert leases.allocator.used == 0


def test_a_lease_that_one_does_not_hold_cannot_be_released() -> None:
    leases = Leases(Allocator(1 << 20))
    (offset,) = leases.take([100], "a")
    for holder, place in (("b", offset), ("a", offset + 128)):
        with pytest.raises(NotHeld):
            leases.release(place, holder)
    with pytest.raises(NotHeld):
        leases.share(offset + 128, "b")


def test_a_holder_must_have_a_lease_on_a_slot_that_is_large_enough() -> None:
    leases = Leases(Allocator(1 << 20))
    (offset,) = leases.take([100], "a")
    assert leases.holds("a", offset, 100)
    assert not leases.holds("a", offset, 100_000)
    assert not leases.holds("b", offset, 100)
    assert not leases.holds("a", offset + 1, 1)


@given(st.lists(st.tuples(st.sampled_from("tsreh"), st.integers(0, 2), st.integers(0, 5)), max_size=60))
def test_when_all_holders_have_ended_all_memory_is_free(steps: list[tuple[str, int, int]]) -> None:
    leases = Leases(Allocator(1 << 20))
    offsets: list[int] = []
    for step, holder, number in steps:
        try:
            if step == "t":
                offsets += leases.take([number * 1000], holder)
            elif offsets:
                offset = offsets[number % len(offsets)]
                if step == "s":
                    leases.share(offset, holder)
                elif step == "r":
                    leases.release(offset, holder)
                elif step == "h":
                    leases.transfer([offset], holder, (holder + 1) % 3)
                else:
                    leases.end(holder)
        except NotHeld:
            pass
    for holder in range(3):
        leases.end(holder)
    assert leases.holders() == []
    assert leases.allocator.used == 0
