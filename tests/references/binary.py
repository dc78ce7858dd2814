"""Functions of two variables with broadcasting, and the sum of many tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FUNCTIONS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
    "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


def binary(algorithm: str, left: Array, right: Array) -> Array:
    """Return left (op) right; dimensions of 1 are broadcast. Comparisons give 1 and 0."""
    with np.errstate(all="ignore"):
        return np.asarray(FUNCTIONS[algorithm](left, right), np.float64)


def total(srcs: list[Array]) -> Array:
    """Return the sum of arrays of one shape."""
    return np.asarray(np.sum(np.stack(srcs), axis=0))
