"""Blocks of an image, each added at its place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Fold

Array = NDArray[Any]


def fold(op: Fold, src: Array) -> Array:
    """Return the image."""
    count = len(op.strides)
    kernel, positions = op.src.dims[2 : 2 + count], op.src.dims[2 + count :]
    found = np.zeros(op.dst.dims)
    for element in np.ndindex(*kernel):
        for position in np.ndindex(*positions):
            place = [
                o * s + k * (d + 1) - p
                for o, k, s, d, p in zip(position, element, op.strides, op.dilations, op.padding_l, strict=True)
            ]
            if all(0 <= at < size for at, size in zip(place, op.dst.dims[2:], strict=True)):
                found[(..., *place)] += src[(..., *element, *position)]
    return found
