"""Batch normalisation with given statistics, and local response normalisation across channels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def batch_normalization(src: Array, mean: Array, variance: Array, scale: Array, shift: Array, epsilon: float) -> Array:
    """Return (src - mean) / sqrt(variance + epsilon) * scale + shift, statistics (C,) for src (N, C, ...)."""
    shape = (1, -1, *(1,) * (src.ndim - 2))
    mean, variance, scale, shift = (a.reshape(shape) for a in (mean, variance, scale, shift))
    return np.asarray((src - mean) / np.sqrt(variance + epsilon) * scale + shift)


def lrn(src: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    """Return src / (k + alpha / size * sum) ** beta.

    The sum of squares runs over channels c - floor((size - 1) / 2) .. c + ceil((size - 1) / 2), cut at the ends.
    """
    channels = src.shape[1]
    squares = np.zeros_like(src)
    for c in range(channels):
        window = slice(max(0, c - (size - 1) // 2), c + size // 2 + 1)
        squares[:, c] = (src[:, window] ** 2).sum(axis=1)
    return np.asarray(src / (k + alpha / size * squares) ** beta)
