"""Gather by rows, by elements and by several indices at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Gather

Array = NDArray[Any]


def gather(op: Gather, src: Array, indices: Array) -> Array:
    """Return what indices choose; zeros for one that is out of range."""
    chosen = np.asarray(indices).astype(np.int64)
    if op.dst.elements == 0:
        return np.zeros(op.dst.dims)
    if op.algorithm == "nd":
        return _nd(op, np.asarray(src), chosen)
    size = src.shape[op.axis]
    inside, wrapped = _wrapped(chosen, size)
    if size == 0:
        return np.zeros(op.dst.dims)
    if op.algorithm == "rows":
        found = np.take(src, wrapped, op.axis)
        inside = np.reshape(inside, ((1,) * op.axis + chosen.shape + (1,) * (src.ndim - op.axis - 1)))
        return np.where(inside, found, 0)
    part = src[tuple(slice(None) if d == op.axis else slice(n) for d, n in enumerate(chosen.shape))]
    return np.where(inside, np.take_along_axis(part, wrapped, op.axis), 0)


def _nd(op: Gather, src: Array, indices: Array) -> Array:
    found = np.zeros(op.dst.dims, src.dtype)
    for place in np.ndindex(indices.shape[:-1]):
        at = place[: op.batch_dims]
        given = indices[place]
        pairs = [_wrapped(index, size) for index, size in zip(given, src.shape[op.batch_dims :], strict=False)]
        if all(inside for inside, _ in pairs):
            found[place] = src[(*at, *(int(index) for _, index in pairs))]
    return found


def _wrapped(indices: Array, size: int) -> tuple[Array, Array]:
    """Return which indices are inside, and them counted from the start, 0 for the others."""
    positive = np.where(indices < 0, indices + size, indices)
    inside = (positive >= 0) & (positive < size)
    return inside, np.where(inside, positive, 0)
