"""The workspace: buffers that live together never share a byte, and memory is reused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
