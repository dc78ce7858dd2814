"""Quantisation by the range of a tensor, each step in float32 as ONNX Runtime computes it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def dynamic_quantise(src: Array) -> tuple[Array, Array, Array]:
    """Return the bytes, the scale and the zero point, all in float64."""
    with np.errstate(all="ignore"):
        x = src.astype(np.float32)
        least, most = np.float32(min(x.min(initial=0.0), 0.0)), np.float32(max(x.max(initial=0.0), 0.0))
        if np.isnan(x).any():
            least = most = np.float32(0.0)
        scale = (most - least) / np.float32(255.0)
        scale = np.float32(1.0) if scale == 0.0 else scale
        start = -least / scale
        point = np.rint(start) if start < 255.0 else np.float32(255.0)
        found = np.nan_to_num(np.rint(x / scale) + point, nan=0.0)
    return tuple(np.asarray(each, np.float64) for each in (np.clip(found, 0.0, 255.0), scale, point))  # type: ignore[return-value]
