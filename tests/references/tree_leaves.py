"""Leaves of decision trees, a level of all rows and trees at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import TreeLeaves

Array = NDArray[Any]


def tree_leaves(op: TreeLeaves, src: Array, nodes: Array, limits: Array, roots: Array) -> Array:
    """Return the numbers of the nodes in which rows end."""
    last = op.nodes.dims[0] - 1
    nodes = np.asarray(nodes, np.int64)
    at = np.broadcast_to(_known(np.asarray(roots, np.int64), last), op.dst.dims)
    for _ in range(op.levels):
        value = np.take_along_axis(src, _known(nodes[at, 0], src.shape[1] - 1), 1)
        passes = value <= limits[at, -1]
        if limits.shape[1] == 2:
            passes &= value >= limits[at, 0]
        passes |= np.isnan(value) & (nodes[at, 3] != 0)
        at = _known(np.where(passes, nodes[at, 1], nodes[at, 2]), last)
    return at


def _known(numbers: Array, last: int) -> Array:
    return np.where((numbers >= 0) & (numbers <= last), numbers, last)
