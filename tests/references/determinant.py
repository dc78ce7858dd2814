"""Determinants by elimination in extended precision, 64 bits on x86-64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def determinant(src: Array) -> Array:
    """Return the determinants (B,) of matrices (B, N, N), in float64."""
    found = np.ones(len(src), np.longdouble)
    with np.errstate(all="ignore"):
        for number, matrix in enumerate(src):
            left = matrix.astype(np.longdouble)
            while left.size:
                place = int(np.argmax(np.abs(left[:, 0])))
                pivot = left[place].copy()
                if pivot[0] == 0:
                    found[number] = 0
                    break
                found[number] *= -pivot[0] if place else pivot[0]
                left[place] = left[0]
                left = left[1:, 1:] - np.outer(left[1:, 0] / pivot[0], pivot[1:])
        return found.astype(np.float64)
