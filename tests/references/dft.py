"""Discrete Fourier transforms, by SciPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Dft

Array = NDArray[Any]


def dft(op: Dft, src: Array) -> Array:
    """Return the transform with its parts along the last dimension."""
    import scipy.fft  # a third of a second of processor time in each process that tests start

    given = src.astype(np.float64)
    signal = given[..., 0] + 1j * given[..., 1] if given.shape[-1] == 2 else given[..., 0]
    if op.mirrors:
        real: Array = scipy.fft.irfft(signal, op.length, op.axis)
        return real[..., None]
    run = scipy.fft.ifft if op.inverse else scipy.fft.fft
    found: NDArray[np.complex128] = run(signal, op.length, op.axis)
    if op.one_sided:
        found = np.take(found, range(op.length // 2 + 1), op.axis)
    return np.stack([found.real, found.imag], -1)
