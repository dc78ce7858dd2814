"""Where the largest or smallest elements are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import ArgReduction

Array = NDArray[Any]


def arg_reduction(op: ArgReduction, src: Array) -> Array:
    """Return the first indices, or the last."""
    find = np.argmax if op.algorithm == "max" else np.argmin
    if op.dst.elements == 0:
        return np.zeros(op.dst.dims)
    if not op.select_last:
        return np.asarray(find(src, op.axis, keepdims=True), np.float64)
    return np.asarray(src.shape[op.axis] - 1 - find(np.flip(src, op.axis), op.axis, keepdims=True), np.float64)
