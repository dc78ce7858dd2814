"""A function with a declared signature, for each of the decorators."""

from __future__ import annotations

import numpy as np
from door_decorators import declared


@declared("void(f8[::1], f8[::1], f8[::1])")
def fir(signal, taps, result):
    """Filter a signal with a finite impulse response."""
    for i in range(result.shape[0]):
        total = 0.0
        for j in range(taps.shape[0]):
            total += signal[i + j] * taps[taps.shape[0] - 1 - j]
        result[i] = total


def call_all():
    """Call the function and check its result."""
    series, result = np.arange(50.0) % 7.0, np.empty(48)
    fir(series, np.ones(3), result)
    assert result.tolist() == np.convolve(series, np.ones(3), "valid").tolist()
