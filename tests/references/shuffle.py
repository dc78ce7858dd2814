"""Shuffle of an axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def shuffle(src: Array, axis: int, group_size: int) -> Array:
    """Return src with an axis seen as (size / group_size, group_size) transposed."""
    before, after = src.shape[:axis], src.shape[axis + 1 :]
    split = src.reshape(*before, src.shape[axis] // group_size, group_size, *after)
    return np.swapaxes(split, axis, axis + 1).reshape(src.shape)
