"""Descriptors of DynamicLstm for the pages of support and for random tests."""

from __future__ import annotations

import random

from poolrt.workers.desc import DynamicLstm, MemoryDesc, OpDesc


def described(
    steps: int, batch: int, hidden: int, states: bool, points: bool, backwards: bool, dtype: str = "f32", tag: str = ""
) -> DynamicLstm:
    """Return the descriptor of a row-major network, whose weights have the layout of a tag."""
    state = MemoryDesc((batch, hidden), dtype)
    return DynamicLstm(
        MemoryDesc((steps, batch, 4, hidden), dtype), state if states else None, state if states else None,
        MemoryDesc((hidden, 4, hidden), "s8", tag), MemoryDesc((4, hidden), "f32"),
        MemoryDesc((4, hidden), "s32") if points else None, MemoryDesc((steps, batch, hidden), dtype), state, backwards,
    )  # fmt: skip


def dynamic_lstms(prop: str, dtype: str) -> list[OpDesc]:
    """One and several steps and sequences, with and without states and zero points."""
    return [
        described(5, 1, 7, True, False, False, dtype), described(3, 2, 18, False, True, True, dtype),
        described(1, 3, 5, True, True, False, dtype),
    ]  # fmt: skip


def random_dynamic_lstm(rng: random.Random) -> OpDesc:
    """Return a descriptor."""
    steps, batch = (rng.choice((1, 2, 3, 5)) for _ in range(2))
    states, points, backwards = (rng.choice((False, True)) for _ in range(3))
    return described(steps, batch, rng.choice((1, 4, 17)), states, points, backwards)
