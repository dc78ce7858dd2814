"""How a range of numbers becomes bytes, as in ONNX's DynamicQuantizeLinear: each step is rounded to float32."""

from __future__ import annotations

import numpy as np


def narrow(value: float) -> float:
    """Return a number rounded to float32."""
    return np.float64(np.float32(value))


def step_of(least: float, most: float) -> float:
    """Return the scale of a range that has 0."""
    step = narrow(narrow(most - least) / 255.0)
    return step if step != 0.0 else 1.0


def point_of(least: float, step: float) -> float:
    """Return the zero point of a range that begins with its least number."""
    start = narrow(-least / step)
    # An infinite range by an infinite step is no number.
    return np.rint(start) if start < 255.0 else 255.0


def byte_of(value: float, step: float, point: float) -> float:
    """Return a number as a byte; 0 for NaN."""
    found = np.rint(narrow(narrow(value) / step)) + point
    return min(found, 255.0) if found > 0.0 else 0.0
