"""Reductions along every dimension that dst has only once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Reduction

Array = NDArray[Any]


def reduction(op: Reduction, src: Array) -> Array:
    """Return dst; norms are of the absolute values to the power p, with eps as the algorithm says."""
    axes = tuple(i for i, (d, s) in enumerate(zip(op.dst.dims, op.src.dims, strict=True)) if d == 1 and s != 1)
    p, eps = float(np.float32(op.p)), float(np.float32(op.eps))
    if op.algorithm.startswith("norm"):
        powers = (np.abs(src) ** p).sum(axis=axes, keepdims=True)
        powers = np.maximum(powers, eps) if op.algorithm.endswith("max") else powers + eps
        return np.asarray(powers if "power_p" in op.algorithm else powers ** (1 / p))
    functions: dict[str, Any] = {"max": np.max, "min": np.min, "sum": np.sum, "mul": np.prod, "mean": np.mean}
    return np.asarray(functions[op.algorithm](src, axis=axes, keepdims=True))
