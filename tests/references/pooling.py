"""Pooling: maximum, and average over the whole window or over the part that lies inside the source."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Pooling

from .windows import taps

Array = NDArray[Any]


def pooling(op: Pooling, src: Array) -> Array:
    """Return dst (N, C, *spatial). A window wholly outside gives -inf (max) or 0 (avg)."""
    out = op.dst.dims[2:]
    geometry = (out, op.kernel, op.strides, op.dilations, op.padding_l)
    if op.algorithm == "max":
        largest = np.full(op.dst.dims, -np.inf)
        for _, seen in taps(src, *geometry, -np.inf):
            largest = np.maximum(largest, seen)
        return largest
    total, inside = np.zeros(op.dst.dims), np.zeros(op.dst.dims)
    for (_, seen), (_, is_inside) in zip(
        taps(src, *geometry, 0.0), taps(np.ones_like(src), *geometry, 0.0), strict=True
    ):
        total += seen
        inside += is_inside
    count = math.prod(op.kernel) if op.algorithm == "avg_include_padding" else np.maximum(inside, 1.0)
    return np.asarray(total / count)
