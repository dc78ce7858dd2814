"""Gradients by central differences, to hold analytic ones against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: Step relative to values of size 1: the error of the difference is about its square, that of rounding 1e-16 over it.
STEP = 1e-5


def numeric_derivative(
    function: Callable[[Array], Array], at: Array, weights: Array, index: tuple[int, ...], step: float = STEP
) -> float:
    """Return the derivative of sum(weights * function(x)) by one element of x, at ``at``."""
    high, low = at.copy(), at.copy()
    high[index] += step
    low[index] -= step
    return float(((function(high) - function(low)) * weights).sum() / (2 * step))


def numeric_gradient(function: Callable[[Array], Array], at: Array, weights: Array) -> Array:
    """Return the gradient of sum(weights * function(x)) at ``at``, element by element."""
    gradient = np.zeros(at.shape)
    for index in np.ndindex(at.shape):
        gradient[index] = numeric_derivative(function, at, weights, index)
    return gradient
