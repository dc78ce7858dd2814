"""Sums of the elements up to each one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import CumulativeSum

Array = NDArray[Any]


def cumulative_sum(op: CumulativeSum, src: Array) -> Array:
    """Return the sums along an axis."""
    given = np.flip(src, op.axis) if op.reverse else src
    found = np.cumsum(given, op.axis) - (given if op.exclusive else 0)
    return np.flip(found, op.axis) if op.reverse else found
