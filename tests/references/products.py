"""Matrix products: matmul with broadcast batch dimensions, and inner product with transposed weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def matmul(src: Array, weights: Array, bias: Array | None) -> Array:
    """Return src (..., M, K) by weights (..., K, N) plus bias (1, ..., N)."""
    product = np.matmul(src, weights)
    return np.asarray(product if bias is None else product + bias)


def inner_product(src: Array, weights: Array, bias: Array | None) -> Array:
    """Return src (N, IC) by the transpose of weights (OC, IC) plus bias (OC,)."""
    product = src @ weights.T
    return np.asarray(product if bias is None else product + bias)
