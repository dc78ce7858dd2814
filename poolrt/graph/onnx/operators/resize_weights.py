"""The weights of every form of a resize along one dimension, as a matrix: after the definition in ONNX's documentation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import numpy as np

from ..folding import Array

#: Whether the second of two neighbours is the nearest, by the distance from the first (0 < distance < 1).
_NEAREST: Final[Mapping[str, Any]] = {
    "round_prefer_floor": lambda ratio: ratio > Fraction(1, 2),
    "round_prefer_ceil": lambda ratio: ratio >= Fraction(1, 2),
    "floor": lambda ratio: False,
    "ceil": lambda ratio: True,
}


def resize_weights(
    size: int, wanted: int, scale: Fraction, mode: str, antialias: bool, options: Mapping[str, Any]
) -> Array:
    """Return a matrix of (wanted, size) float64; a row of NaN is outside, where an extrapolation value is taken.

    ``scale`` need not be the quotient of the sizes. ``options`` have ``coordinates``, ``nearest``, ``cubic_coeff_a``,
    ``exclude_outside`` and, for ``tf_crop_and_resize``, ``roi`` with the two ends of this dimension.
    """
    found = np.zeros((wanted, size))
    for row in range(wanted):
        place = _place(row, size, wanted, scale, options)
        if options["coordinates"] == "tf_crop_and_resize" and not 0 <= place <= size - 1:
            found[row] = math.nan
            continue
        # Of a whole number, the neighbour before it is the first, with the whole distance to it.
        first = math.ceil(place) - 1
        start, weights = _neighbours(place - first, scale, mode, antialias, options)
        indices = first + start + np.arange(len(weights))
        if options.get("exclude_outside"):
            weights = np.where((indices >= 0) & (indices < size), weights, 0.0)
            weights = weights / weights.sum()
        np.add.at(found[row], np.clip(indices, 0, size - 1), weights)
    return found


def _place(row: int, size: int, wanted: int, scale: Fraction, options: Mapping[str, Any]) -> Fraction:
    """Return the exact place of a result's element among those of the source."""
    length, half = scale * size, Fraction(1, 2)
    match options["coordinates"]:
        case "align_corners":
            return Fraction(0) if length == 1 else row * (size - 1) / (length - 1)
        case "asymmetric":
            return row / scale
        case "tf_crop_and_resize":
            low, high = (Fraction(each) for each in options["roi"])
            if length == 1:
                return (high - low) * (size - 1) / 2 + low * (size - 1)
            return row * (high - low) * (size - 1) / (length - 1) + low * (size - 1)
        case "pytorch_half_pixel":
            return -half if length == 1 else (row + half) / scale - half
        case "half_pixel":
            return (row + half) / scale - half
        case "half_pixel_symmetric":
            return size * (1 - wanted / length) / 2 + (row + half) / scale - half
        case "tf_half_pixel_for_nn":
            return (row + half) / scale
        case other:
            raise ValueError(f"unknown coordinate_transformation_mode {other!r}")


def _neighbours(
    ratio: Fraction, scale: Fraction, mode: str, antialias: bool, options: Mapping[str, Any]
) -> tuple[int, Array]:
    """Return where the neighbours of a place begin, and their weights; it is ``ratio`` (0 to 1) behind the first of two."""
    if mode == "nearest":
        is_second = ratio == 1 or _NEAREST[options["nearest"]](ratio)
        return 0, np.array([not is_second, is_second], np.float64)
    shrunk = min(float(scale), 1.0) if antialias else 1.0
    reach = 1 if mode == "linear" else 2
    start = math.floor(-reach / shrunk) + 1
    distances = np.abs((np.arange(start, 2 - start) - float(ratio)) * shrunk)
    if mode == "linear":
        weights = np.clip(1 - distances, 0, 1)
    else:
        a, d = options["cubic_coeff_a"], distances
        near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        weights = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    return start, weights / weights.sum() if antialias else weights
