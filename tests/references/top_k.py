"""The largest or smallest elements along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import TopK

Array = NDArray[Any]


def top_k(op: TopK, src: Array) -> tuple[Array, Array]:
    """Return values and indices: NaN, then the best; equal elements in their order."""
    ordered = -src if op.largest else src
    keys = np.where(np.isnan(src), -np.inf, ordered)
    order = np.lexsort((keys, ~np.isnan(src)), axis=op.axis)
    indices = np.take(order, range(op.k), op.axis)
    return np.take_along_axis(src, indices, op.axis), indices.astype(np.float64)
