"""Parametric relu."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def prelu(src: Array, weights: Array) -> Array:
    """Return src, negative elements times their slopes."""
    return np.asarray(np.maximum(src, 0) + weights * np.minimum(src, 0))
