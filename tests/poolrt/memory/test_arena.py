"""The arena: sizes of slots, the allocator under any order of use, and seals."""

from __future__ import annotations

import fcntl
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.memory.arena import PADDING, PAGE, PAGED, Allocator, ArenaExhausted, make_arena, slot_size


@given(st.integers(0, 1 << 40))
def test_a_slot_holds_its_tensor_and_the_padding_and_wastes_at_most_an_eighth(nbytes: int) -> None:
    size = slot_size(nbytes)
    assert size >= nbytes + PADDING
    assert size % 128 == 0
    assert size <= max((nbytes + PADDING) * 1.125, nbytes + PADDING + 128)
    if size >= PAGED:
        assert size % PAGE == 0


@given(
    st.lists(st.one_of(st.integers(0, 300_000), st.sampled_from(["free", "trim", "compact"])), max_size=80), st.data()
)
def test_slots_never_overlap_and_all_comes_back(steps: list[int | str], data: st.DataObject) -> None:
    allocator = Allocator(2_000_000)
    live: dict[int, int] = {}
    for step in steps:
        if step == "trim":
            for offset, size in allocator.trim(0):
                assert offset % PAGE == 0
                assert size % PAGE == 0
                assert all(offset + size <= o or o + s <= offset for o, s in live.items())
        elif step == "compact":
            allocator.compact()
        elif step == "free":
            if live:
                offset = data.draw(st.sampled_from(sorted(live)))
                del live[offset]
                allocator.free(offset)
        else:
            size = slot_size(int(step))
            try:
                offset = allocator.take(int(step))
            except ArenaExhausted as error:
                assert error.needed == size
                assert error.free == allocator.nbytes - allocator.used
                continue
            assert offset % (PAGE if size >= PAGED else 128) == 0
            assert 0 <= offset <= allocator.nbytes - size
            assert all(offset + size <= o or o + s <= offset for o, s in live.items())
            live[offset] = size
        assert allocator.used == sum(live.values())
    for offset in live:
        allocator.free(offset)
    assert allocator.used == 0
    # Nothing is lost to fragments: the whole can be had in one piece again.
    allocator.take(1_700_000)


def test_the_slot_freed_last_is_the_first_to_be_used_again() -> None:
    allocator = Allocator(1 << 20)
    first, second = allocator.take(5000), allocator.take(5000)
    allocator.free(first)
    allocator.free(second)
    assert [allocator.take(5000), allocator.take(5000)] == [second, first]


def test_small_slots_that_were_freed_take_no_memory_of_this_process_after_compaction() -> None:
    allocator = Allocator(1 << 30)
    large = [allocator.take(PAGED) for _ in range(3)]
    small = [allocator.take(1) for _ in range(100_000)]
    for offset in (*small, large[1]):
        allocator.free(offset)
    tables = allocator._sizes, allocator._free
    before = sum(map(sys.getsizeof, (tables[0], *tables[1].values())))
    allocator.compact()
    assert before > 1_000_000
    assert sum(map(sys.getsizeof, (allocator._sizes, *allocator._free.values(), allocator._holes))) < 2000
    # A large slot stays warm
    assert allocator.take(PAGED) == large[1]


def test_an_exhausted_arena_says_what_is_needed_what_is_there_and_which_setting_to_raise() -> None:
    allocator = Allocator(1 << 20)
    allocator.take(600_000)
    with pytest.raises(
        ArenaExhausted, match=r"1048576 bytes is too small: 720896 bytes are needed.*arena_bytes"
    ) as caught:
        allocator.take(700_000)
    assert caught.value.free == (1 << 20) - allocator.used


def test_a_slot_cannot_be_given_back_twice() -> None:
    allocator = Allocator(1 << 20)
    offset = allocator.take(10)
    allocator.free(offset)
    with pytest.raises(KeyError):
        allocator.free(offset)


def test_no_process_can_change_the_size_of_an_arena() -> None:
    fd = make_arena(10_000)
    try:
        assert os.fstat(fd).st_size == 12288
        assert os.fstat(fd).st_blocks == 0
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) == seals
        for size in (4096, 65536):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
    finally:
        os.close(fd)
