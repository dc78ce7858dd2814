"""Pairs of elements of rows, rotated by angles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Rotary

Array = NDArray[Any]


def rotary(op: Rotary, src: Array, cosine: Array, sine: Array) -> Array:
    """Return src with pairs rotated as complex numbers are, in the type of the arguments."""
    pairs = op.cosine.dims[3]
    result = np.array(src)
    turned = src[..., : 2 * pairs]
    if op.interleaved:
        x, y = turned[..., ::2], turned[..., 1::2]
        result[..., : 2 * pairs : 2], result[..., 1 : 2 * pairs : 2] = x * cosine - y * sine, y * cosine + x * sine
    else:
        x, y = turned[..., :pairs], turned[..., pairs:]
        result[..., :pairs], result[..., pairs : 2 * pairs] = x * cosine - y * sine, y * cosine + x * sine
    return result
