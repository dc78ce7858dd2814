"""Resampling, dimension after dimension: each is a product with a matrix of weights."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Resampling

Array = NDArray[Any]


def resampling(op: Resampling, src: Array) -> Array:
    """Return dst. Places are exact fractions, so that halves are what they are."""
    value = src
    for axis in range(2, src.ndim):
        weights = _weights(op.algorithm, src.shape[axis], op.dst.dims[axis])
        value = np.moveaxis(np.tensordot(weights, value, (1, axis)), 0, axis)
    return value


def _weights(algorithm: str, size: int, wanted: int) -> Array:
    matrix = np.zeros((wanted, size))
    for i in range(wanted):
        x = (i + Fraction(1, 2)) * Fraction(size, wanted) - Fraction(1, 2)
        if algorithm == "nearest":
            matrix[i, (x + Fraction(1, 2)).__floor__()] = 1
            continue
        low = x.__floor__()
        for index, weight in ((low, 1 - (x - low)), (low + 1, x - low)):
            matrix[i, min(max(index, 0), size - 1)] += float(weight)
    return matrix
