"""bfloat16, for which NumPy has no type: the upper half of a float32, as uint16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def to_bfloat16(array: NDArray[Any]) -> NDArray[np.uint16]:
    """Return the bits of values rounded to bfloat16, ties to even; values that are too large become infinite."""
    with np.errstate(over="ignore", under="ignore"):
        bits = np.ascontiguousarray(_to_odd(array)).view(np.uint32)
    rounded = ((bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)).astype(
        np.uint16
    )
    # The carry could turn the bits of a NaN into an infinity.
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    quiet = ((bits >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
    return np.where(is_nan, quiet, rounded).reshape(array.shape)


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the values of bits as float32, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _to_odd(array: NDArray[Any]) -> NDArray[np.float32]:
    """Return float64 as float32, rounded to odd: the second rounding then gives the result of a single one."""
    if array.dtype != np.float64:
        return array.astype(np.float32)
    nearest = array.astype(np.float32)
    wide = nearest.astype(np.float64)
    beyond = np.abs(wide) > np.abs(array)
    truncated = np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest).astype(np.float32)
    inexact = np.isfinite(array) & (truncated.astype(np.float64) != array)
    odd: NDArray[np.float32] = (truncated.view(np.uint32) | inexact.astype(np.uint32)).view(np.float32)
    return odd
