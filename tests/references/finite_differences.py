"""Gradients by central differences, to hold analytic ones against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: Step relative to values of size 1: the error of the difference is about its square, that of rounding 1e-16 over it.
STEP = 1e-5


def numeric_gradient(function: Callable[[Array], Array], at: Array, weights: Array) -> Array:
    """Return the gradient of sum(weights * function(x)) at ``at``, element by element."""
    gradient = np.zeros(at.shape)
    for index in np.ndindex(at.shape):
        high, low = at.copy(), at.copy()
        high[index] += STEP
        low[index] -= STEP
        gradient[index] = ((function(high) - function(low)) * weights).sum() / (2 * STEP)
    return gradient
