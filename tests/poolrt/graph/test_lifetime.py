"""The workspace: buffers that live together never share a byte, and memory is reused."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.graph import lifetime
from poolrt.graph.lifetime import ALIGNMENT, Lifetime, aligned, place

LIVES = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 10)).map(
        lambda t: Lifetime(t[0], t[1], t[1] + t[2])
    ),
    max_size=40,
)


@given(lives=LIVES)
def test_buffers_alive_at_one_time_do_not_overlap(lives: list[Lifetime]) -> None:
    offsets, total = place(lives)
    spans = [(o, o + aligned(life.nbytes), life) for o, life in zip(offsets, lives, strict=True)]
    for i, (start, end, life) in enumerate(spans):
        assert start % ALIGNMENT == 0
        assert end <= total
        for other_start, other_end, other in spans[:i]:
            together = life.first <= other.last and other.first <= life.last
            assert not together or end <= other_start or other_end <= start


def test_a_chain_of_steps_needs_room_for_two_neighbours_only() -> None:
    lives = [Lifetime(1024, step, step + 1) for step in range(50)]
    _, total = place(lives)
    assert total == 2048


def test_nothing_needs_no_workspace() -> None:
    assert place([]) == ([], 0)


@given(lives=LIVES)
def test_each_buffer_is_at_the_lowest_offset_that_is_free_for_its_whole_life(lives: list[Lifetime]) -> None:
    offsets, _ = place(lives)
    order = sorted(range(len(lives)), key=lambda i: (-lives[i].nbytes, i))
    for position, index in enumerate(order):
        life = lives[index]
        taken = [
            (offsets[other], offsets[other] + aligned(lives[other].nbytes))
            for other in order[:position]
            if life.first <= lives[other].last and lives[other].first <= life.last
        ]
        ends = sorted({0, *(end for _, end in taken)})
        free = (at for at in ends if all(end <= at or at + aligned(life.nbytes) <= start for start, end in taken))
        assert offsets[index] == next(free)


def test_buffers_with_too_many_neighbours_are_placed_above_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "NEIGHBOURS_LIMIT", 3)
    lives = [Lifetime(1000 - i, i % 3, 10) for i in range(12)]
    offsets, total = place(lives)
    spans = sorted((offset, offset + aligned(life.nbytes)) for offset, life in zip(offsets, lives, strict=True))
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert total == spans[-1][1]


@pytest.mark.parametrize("together", [1, pytest.param(5000, marks=pytest.mark.slow)])
def test_the_time_is_about_proportional_to_the_number_of_buffers(together: int) -> None:
    lives = [Lifetime(1024, step, step + together) for step in range(20_000)]
    began = time.process_time()
    place(lives)
    assert time.process_time() - began < 4  # 40 s if each buffer is compared with all others
