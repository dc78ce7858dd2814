"""Samples of a part of a box along a dimension: how many a part has, and which of them may be inside an image.

A box is ``start`` and ``length``, and a sample is at ``start + (number + 0.5) * step``. One is inside unless it is more than one
element away from the image. Guarantees: numbers of samples are 0 to ``samples`` if that is not 0, and those of a box that is no
number or beyond all images are 0.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

#: Boxes that begin or end further away have no samples of their own number: float64 would not tell these apart.
_FAR: Final = float(1 << 40)


def samples_of(start: float, length: float, ratio: Any, samples: int) -> int:
    """Return how many samples a part has, whose length in elements is ``ratio``, as it was computed."""
    if samples > 0:
        return samples
    if not (abs(start) < _FAR and length > 0.0 and length < _FAR):
        return 0
    return max(1, int(np.ceil(ratio)))


def first_sample(start: float, step: float, number: int, samples: int) -> int:
    """Return the number of a sample; those before it are outside. Given numbers of samples are few: all are looked at."""
    if samples > 0:
        return 0
    first = np.floor((-1.0 - start) / step) - 2.0
    return min(int(first), number) if first > 0.0 else 0


def last_sample(start: float, step: float, size: int, number: int, samples: int) -> int:
    """Return the number behind that of a sample; those from it on are outside."""
    if samples > 0:
        return number
    last = np.ceil((float(size) - start) / step) + 2.0
    return max(0, min(int(last), number))
