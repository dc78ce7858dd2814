"""Resampling, dimension after dimension: each is a product with a matrix of weights."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Resampling

Array = NDArray[Any]


def resampling(op: Resampling, src: Array) -> Array:
    """Return dst. Places are exact fractions, so that halves are what they are."""
    value, outside = src, np.zeros(op.dst.dims, bool)
    for axis in range(2, src.ndim):
        places = [_place(op, i, axis) for i in range(op.dst.dims[axis])]
        weights = _weights(op, places, src.shape[axis])
        value = np.moveaxis(np.tensordot(weights, value, (1, axis)), 0, axis)
        if op.coordinates == "tf_crop_and_resize":
            beyond = np.array([not 0 <= x <= src.shape[axis] - 1 for x in places], bool)
            outside |= beyond.reshape([-1 if each == axis else 1 for each in range(src.ndim)])
    return np.where(outside, op.extrapolation, value)


def _place(op: Resampling, i: int, axis: int) -> Fraction:
    """Return ONNX's x_original."""
    size, wanted = op.src.dims[axis], op.dst.dims[axis]
    scale = Fraction(op.factors[axis - 2]) if op.factors else Fraction(wanted, size)
    half = Fraction(1, 2)
    if op.coordinates == "asymmetric":
        return i / scale
    if op.coordinates == "align_corners":
        return Fraction(i * (size - 1), wanted - 1) if wanted > 1 else Fraction(0)
    if op.coordinates == "pytorch_half_pixel" and wanted == 1:
        return Fraction(0)
    if op.coordinates == "half_pixel_symmetric":
        center = Fraction(size, 2)
        return center * (1 - wanted / (scale * size)) + (i + half) / scale - half
    if op.coordinates == "tf_crop_and_resize":
        start, end = (Fraction(op.roi[at]) for at in (axis - 2, axis - 2 + len(op.roi) // 2))
        if wanted == 1:
            return half * (start + end) * (size - 1)
        return start * (size - 1) + i * (end - start) * Fraction(size - 1, wanted - 1)
    return (i + half) / scale - half


def _weights(op: Resampling, places: list[Fraction], size: int) -> Array:
    matrix = np.zeros((len(places), size))
    for i, x in enumerate(places):
        low = x.__floor__()
        if op.algorithm == "nearest":
            half = Fraction(1, 2)
            nearest = {
                "floor": low, "ceil": math.ceil(x), "round_prefer_floor": math.ceil(x - half),
                "round_prefer_ceil": math.floor(x + half),
            }[op.nearest]  # fmt: skip
            seen = {nearest: 1.0}
        elif op.algorithm == "linear":
            seen = {low: float(1 - (x - low)), low + 1: float(x - low)}
        else:
            seen = {at: _keys(op.cubic_coeff_a, abs(float(x - at))) for at in range(low - 1, low + 3)}
        if op.exclude_outside:
            seen = {at: weight for at, weight in seen.items() if 0 <= at < size}
            total = sum(seen.values())
            seen = {at: weight / total for at, weight in seen.items()} if total else {low: 1.0}
        for at, weight in seen.items():
            matrix[i, min(max(at, 0), size - 1)] += weight
    return matrix


def _keys(a: float, distance: float) -> float:
    """Return Keys' function of a distance."""
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    return a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a if distance < 2 else 0.0
