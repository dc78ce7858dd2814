"""Seeded weights that keep the size of activations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Weights:
    """Draws float32 weights in a fixed order."""

    def __init__(self, seed: int = 0) -> None:
        self._draw = np.random.default_rng(seed)

    def normal(self, dims: tuple[int, ...], deviation: float) -> Array:
        """Return normally distributed numbers around 0."""
        return self._draw.standard_normal(dims, np.float32) * np.float32(deviation)

    def matrix(self, inputs: int, outputs: int) -> Array:
        """Return a matrix (inputs, outputs) whose product has its input's variance."""
        return self.normal((inputs, outputs), math.sqrt(1.0 / inputs))

    def kernel(self, outputs: int, inputs: int, *sizes: int) -> Array:
        """Return the weights of a convolution, (outputs, inputs, \\*sizes), before a relu."""
        return self.normal((outputs, inputs, *sizes), math.sqrt(2.0 / (inputs * math.prod(sizes))))

    def bias(self, size: int) -> Array:
        """Return small numbers."""
        return self.normal((size,), 0.02)

    def between(self, size: int, low: float, high: float) -> Array:
        """Return uniformly distributed numbers."""
        return self._draw.uniform(low, high, size).astype(np.float32)
