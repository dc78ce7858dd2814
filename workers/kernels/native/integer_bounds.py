"""Bounds of requantized results of 8-bit integers, from those before scale and zero point of dst."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .compiler.language import inlined
from .integers import load_s32
from .vec import fload

#: Data type -> the least and the most that a result is limited to before it is rounded.
_RANGES: Final = {"u8": (0.0, 255.0), "s8": (-128.0, 127.0)}


def make_bounds(dtype: str) -> Any:
    """Return the function of kernels whose results have a data type.

    Arguments: addresses of scale (f32) and zero point (s32) of dst (0: none); a factor of what is added, and the bounds of the
    result, all before scale and zero point. It returns the factor and the bounds (f32) of the result as it is stored, and the
    zero point. Bytes are limited to their type before the zero point is added, other types after it.
    """
    least, most = _RANGES.get(dtype, (-np.inf, np.inf))
    bytewise = dtype in _RANGES

    @inlined
    def bounds(scale: int, zero_point: int, weight: float, low: float, high: float) -> Any:
        if scale != 0:
            divisor = np.float64(fload(scale))
            weight, low, high = weight / divisor, low / divisor, high / divisor
            if divisor < 0.0:
                low, high = high, low
        plus = 0
        if zero_point != 0:
            plus = load_s32(zero_point)
        lowest, highest = least, most
        if bytewise:
            lowest, highest = least - plus, most - plus
        else:
            low, high = low + plus, high + plus
        return (
            np.float32(weight),
            np.float32(min(max(low, lowest), highest)),
            np.float32(max(min(high, highest), lowest)),
            plus,
        )

    return bounds
