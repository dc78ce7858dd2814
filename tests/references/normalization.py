"""Local response normalisation, across channels and within them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


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


def lrn_within(src: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    """Return src / (k + alpha / size ** rank * sum) ** beta, the sum of squares over a window of all spatial dimensions.

    The window reaches from i - floor((size - 1) / 2) to i + floor(size / 2), cut at the edges.
    """
    if not src.size:
        return src
    squares = np.pad(src**2, [(0, 0), (0, 0), *[((size - 1) // 2, size // 2)] * (src.ndim - 2)])
    axes = tuple(range(2, src.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(squares, (size,) * len(axes), axes)
    total = windows.sum(axis=tuple(range(src.ndim, windows.ndim)))
    return np.asarray(src / (k + alpha / size ** len(axes) * total) ** beta)
