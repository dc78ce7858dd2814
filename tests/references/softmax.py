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


def softmax_gradient(dst: Array, diff_dst: Array, axis: int, algorithm: str) -> Array:
    """Return the gradient of src from dst: the product with the Jacobian, diag(dst) - dst dst^T for ``accurate``."""
    moved, errors = (np.moveaxis(a, axis, -1) for a in (dst, diff_dst))
    size = moved.shape[-1]
    if algorithm == "log":
        jacobian = np.eye(size) - np.exp(moved)[..., None, :] * np.ones((size, 1))
    else:
        jacobian = np.eye(size) * moved[..., None, :] - moved[..., :, None] * moved[..., None, :]
    return np.moveaxis((errors[..., None, :] @ jacobian)[..., 0, :], -1, axis)
