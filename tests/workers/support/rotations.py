"""Descriptors of Rotary for the pages of support and for random tests."""

from __future__ import annotations

import random
from collections.abc import Sequence

from poolrt.workers.desc import MemoryDesc, OpDesc, Rotary


def rotaries(prop: str, dtype: str) -> list[OpDesc]:
    """Rows with elements behind their pairs and without, angles for each of them or for some."""
    shapes: tuple[tuple[Sequence[int], Sequence[int], bool], ...] = (
        ((2, 3, 5, 6), (2, 1, 5, 3), False), ((1, 2, 3, 37), (1, 1, 3, 17), True), ((2, 3, 4, 2), (1, 3, 1, 1), True),
        ((1, 1, 2, 70), (1, 1, 2, 33), False), ((0, 2, 3, 4), (1, 2, 3, 2), False), ((3, 2, 2, 32), (3, 2, 2, 16), True),
    )  # fmt: skip
    found: list[OpDesc] = []
    for dims, angles, interleaved in shapes:
        src, given = MemoryDesc(tuple(dims), dtype), MemoryDesc(tuple(angles), dtype)
        found.append(Rotary(src, given, given, src, interleaved))
    return found


def random_rotary(rng: random.Random) -> OpDesc:
    """Return a row-major descriptor."""
    sizes, pairs = [rng.choice((1, 2, 3, 5)) for _ in range(3)], rng.choice((1, 3, 16, 17))
    src = MemoryDesc((*sizes, 2 * pairs + rng.choice((0, 1, 5))), "f32")
    angles = MemoryDesc((*(rng.choice((1, size)) for size in sizes), pairs), "f32")
    return Rotary(src, angles, angles, src, rng.random() < 0.5)
