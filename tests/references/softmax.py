"""Softmax and its logarithm along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def softmax(src: Array, axis: int, algorithm: str) -> Array:
    """Return exp(src - max) / sum, or its logarithm for algorithm ``log``."""
    if src.size == 0:
        return src.copy()
    with np.errstate(invalid="ignore"):
        shifted = src - src.max(axis=axis, keepdims=True)
        total = np.exp(shifted).sum(axis=axis, keepdims=True)
        return np.asarray(shifted - np.log(total) if algorithm == "log" else np.exp(shifted) / total)
