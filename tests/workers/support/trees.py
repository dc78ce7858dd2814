"""Descriptors of TreeLeaves for the pages of support and for random tests, and trees for them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import MemoryDesc, OpDesc, TreeLeaves
from tests.references.data_types import rounded

Array = NDArray[Any]


def described(
    rows: int, columns: int, trees: int, levels: int, bounds: int = 1, dtype: str = "f32", nodes: int = 0
) -> TreeLeaves:
    """Return the descriptor for trees that `random_trees` makes, or of another number of nodes."""
    count = nodes or trees * ((2 << levels) - 1)
    return TreeLeaves(
        MemoryDesc((rows, columns), dtype), MemoryDesc((count, 4), "s32"), MemoryDesc((count, bounds), dtype),
        MemoryDesc((trees,), "s32"), MemoryDesc((rows, trees), "s32"), levels,
    )  # fmt: skip


def trees_of(prop: str, dtype: str) -> list[OpDesc]:
    """Few and many rows, and trees."""
    shapes = ((1, 5, 19, 3, 1), (17, 3, 2, 4, 2), (9, 1, 11, 1, 1), (3, 2, 3, 5, 2), (70, 9, 5, 2, 1), (0, 2, 3, 1, 1))
    return [described(rows, columns, trees, levels, bounds, dtype) for rows, columns, trees, levels, bounds in shapes]


def random_descriptor(rng: random.Random) -> OpDesc:
    """Return a row-major descriptor."""
    rows, columns, trees = (rng.choice((1, 2, 3, 9, 17)) for _ in range(3))
    levels, bounds, dtype = rng.choice((1, 2, 4)), rng.choice((1, 2)), rng.choice(("f32", "f64"))
    return described(rows, columns, trees, levels, bounds, dtype, rng.choice((1, 7, 40)))


def random_trees(op: TreeLeaves, seed: int) -> tuple[Array, Array, Array]:
    """Return nodes, limits and roots: some nodes above the last level are leaves, and some numbers are of no node."""
    rng, (count, bounds) = np.random.default_rng(seed), op.limits.dims
    trees, size = op.roots.dims[0], (2 << op.levels) - 1
    within = np.arange(count) % size
    is_leaf = (within >= size // 2) | (rng.random(count) < 0.1)
    own, first = np.arange(count), np.arange(count) - within
    nodes = np.stack(
        [
            rng.integers(0, op.src.dims[1], count),
            np.where(is_leaf, own, first + 2 * within + 1),
            np.where(is_leaf, own, first + 2 * within + 2),
            rng.integers(0, 2, count),
        ],
        1,
    )
    nodes[0, 0] = -1
    nodes[-1, 1] = count + 5
    limits = rng.integers(-3, 4, (count, bounds)) / 2
    limits.sort(1)
    return nodes, rounded(limits, op.limits.dtype), np.arange(trees) * size % max(count, 1)
