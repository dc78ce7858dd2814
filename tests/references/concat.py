"""Concatenation along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def concat(srcs: list[Array], axis: int) -> Array:
    """Return the sources joined along ``axis``."""
    return np.asarray(np.concatenate(srcs, axis))
