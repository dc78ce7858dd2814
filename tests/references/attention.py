"""Scaled dot product attention."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Attention

Array = NDArray[Any]


def attention(op: Attention, query: Array, key: Array, value: Array, mask: Array | None) -> Array:
    """Return softmax(scale * query key^T + mask) value; 0 for queries without keys."""
    if op.dst.elements == 0:
        return np.zeros(op.dst.dims)
    shared = query.shape[1] // key.shape[1]
    key, value = (np.repeat(array, shared, axis=1) for array in (key, value))
    rows, keys = query.shape[2], key.shape[2]
    with np.errstate(invalid="ignore"):
        scores = query @ key.swapaxes(2, 3) * op.factor
        if mask is not None and op.mask is not None and op.mask.dtype != "bool":
            scores = scores + mask
        elif mask is not None:
            scores = np.where(mask != 0, scores, -np.inf)
        if op.causal:
            scores = np.where(np.tri(rows, keys, keys - rows, bool), scores, -np.inf)
        largest = np.fmax.reduce(scores, axis=-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(largest == -np.inf, 0.0, largest))
        total = weights.sum(axis=-1, keepdims=True)
        return np.asarray(np.where(total == 0, 0.0, weights @ value / np.where(total == 0, 1.0, total)))
