"""What each data type can hold: float64 values rounded to it, as numbers and as NumPy arrays."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import LIMITS, numpy_name

Array = NDArray[Any]

FLOATS: Final = ("f64", "f32", "f16", "bf16")
INTEGERS: Final = tuple(LIMITS)
#: Precision (bits, the leading one included), lowest and highest exponent of a type narrower than NumPy rounds to.
_BF16: Final = (8, -126, 127)


def numpy_type(dtype: str) -> np.dtype[Any]:
    """Return the NumPy type of any data type."""
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bf16" else np.dtype(numpy_name(dtype))


def rounded(values: Array, dtype: str) -> Array:
    """Return float64 values rounded once to a data type, as float64.

    To nearest, ties to even; integers are saturated and take NaN as their least; of bool, any value but 0 becomes 1.
    """
    values = np.asarray(values, np.float64)
    if dtype == "bool":
        return np.asarray(values != 0, np.float64)
    with np.errstate(all="ignore"):
        if dtype in INTEGERS:
            limits = np.iinfo(numpy_type(dtype))
            return np.clip(np.rint(np.where(np.isnan(values), -np.inf, values)), float(limits.min), float(limits.max))
        if dtype != "bf16":
            return values.astype(numpy_type(dtype)).astype(np.float64)
        bits, lowest, highest = _BF16
        fraction, exponent = np.frexp(values)
        step = np.maximum(exponent, lowest + 1) - bits
        near = np.ldexp(np.rint(np.ldexp(fraction, exponent - step)), step)
        near = np.where(np.abs(near) >= 2.0 ** (highest + 1), np.copysign(np.inf, values), near)
        return np.where(np.isfinite(values), near, values)


def converted(values: Array, dtype: str) -> Array:
    """Return float64 values as an array of a data type, each rounded once."""
    near = rounded(values, dtype)
    if dtype in ("s64", "u64"):
        kind, (_, most) = numpy_type(dtype), LIMITS[dtype]
        large = near >= float(most + 1)
        return np.where(large, np.asarray(most, kind), np.where(large, 0, near).astype(kind))
    with np.errstate(invalid="ignore"):
        return near.astype(numpy_type(dtype))
