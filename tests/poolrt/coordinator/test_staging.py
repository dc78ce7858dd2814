"""Staging: constants never overlap, few pages serve many, a small arena serves one at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.coordinator.leases import Leases
from poolrt.coordinator.staging import STAGING_BYTES, Staging
from poolrt.memory.arena import Allocator, ArenaExhausted

MIB = 1 << 20
HOLDER = ("load", 1)


@given(
    sizes=st.lists(st.integers(1, 24 * MIB), min_size=1, max_size=30),
    choices=st.lists(st.integers(0, 1000), min_size=60, max_size=60),
)
def test_constants_in_staging_never_overlap_and_all_get_through(sizes: list[int], choices: list[int]) -> None:
    leases = Leases(Allocator(256 * MIB))
    staging = Staging(leases, HOLDER, sum(sizes))
    waiting, inside = list(enumerate(sizes)), dict[int, tuple[int, int]]()
    for choice in choices:
        if waiting:
            number, size = waiting[0]
            staged = staging.take(number, size)
            if staged is not None:
                assert all(staged.offset + size <= start or end <= staged.offset for start, end in inside.values())
                inside[number] = (staged.offset, staged.offset + size)
                waiting.pop(0)
                continue
        if inside:
            number = list(inside)[choice % len(inside)]
            staging.give(number)
            del inside[number]
    leases.end(HOLDER)
    assert leases.allocator.used == 0


def test_many_constants_pass_through_one_slot() -> None:
    leases = Leases(Allocator(1024 * MIB))
    staging = Staging(leases, HOLDER, 400 * MIB)
    for number in range(100):
        assert staging.take(number, 4 * MIB) is not None
        staging.give(number)
    assert leases.allocator.used < 2 * STAGING_BYTES


def test_a_full_slot_makes_the_next_constant_wait() -> None:
    staging = Staging(Leases(Allocator(256 * MIB)), HOLDER, 64 * MIB)
    assert staging.take(0, 12 * MIB) is not None
    assert staging.take(1, 12 * MIB) is None
    staging.give(0)
    assert staging.take(1, 12 * MIB) is not None


def test_an_arena_too_small_for_the_slot_serves_one_constant_at_a_time() -> None:
    staging = Staging(Leases(Allocator(8 * MIB)), HOLDER, 64 * MIB)
    for number in range(3):
        assert staging.take(number, 2 * MIB) is not None
        assert staging.take(10, 2 * MIB) is None
        staging.give(number)
    with pytest.raises(ArenaExhausted):
        staging.take(4, 32 * MIB)
