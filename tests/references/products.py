"""Matrix products: matmul with broadcast batch dimensions, and inner product with transposed weights of any rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def matmul(src: Array, weights: Array, bias: Array | None) -> Array:
    """Return src (..., M, K) by weights (..., K, N) plus bias, which broadcasts to it."""
    product = np.matmul(src, weights)
    return np.asarray(product if bias is None else product + bias)


def inner_product(src: Array, weights: Array, bias: Array | None) -> Array:
    """Return src (N, IC, ...) by the transpose of weights (OC, IC, ...), dimensions behind the first flattened."""
    product = _flat(src) @ _flat(weights).T
    return np.asarray(product if bias is None else product + bias)


def inner_product_backward_data(weights: Array, diff_dst: Array) -> Array:
    """Return the gradient of src from that of dst (N, OC)."""
    return (diff_dst @ _flat(weights)).reshape(diff_dst.shape[0], *weights.shape[1:])


def inner_product_backward_weights(src: Array, diff_dst: Array) -> tuple[Array, Array]:
    """Return the gradients of weights and bias from that of dst (N, OC)."""
    return (diff_dst.T @ _flat(src)).reshape(diff_dst.shape[1], *src.shape[1:]), diff_dst.sum(axis=0)


def _flat(array: Array) -> Array:
    return array.reshape(array.shape[0], int(np.prod(array.shape[1:])))
