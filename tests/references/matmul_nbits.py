"""Product by weights of a few bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import MatmulNbits

Array = NDArray[Any]


def matmul_nbits(
    op: MatmulNbits, src: Array, weights: Array, scales: Array, points: Array | None, bias: Array | None
) -> Array:
    """Return src times the transpose of the dequantised weights, plus a bias."""
    columns, blocks, _ = op.weights.dims
    numbers = unpack(weights, op.bits).reshape(columns, blocks, op.block)
    zero = np.full((columns, blocks), 1 << (op.bits - 1))
    if points is not None and op.points is not None:
        zero = unpack(points, op.bits)[:, :blocks] if op.points.dtype == "u8" else points
    wide = ((numbers - zero[:, :, None]) * scales[:, :, None]).reshape(columns, -1)[:, : op.src.dims[1]]
    return np.asarray(src @ wide.T + (0.0 if bias is None else bias))


def unpack(stored: Array, bits: int) -> Array:
    """Return the numbers of bytes along the last dimension, the first in the lowest bits."""
    parts = [stored.astype(np.uint8) >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*stored.shape[:-1], -1).astype(np.float64)
