"""Sliding windows over padded spatial dimensions, shared by the references of convolution and pooling."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def taps(
    src: Array,
    out: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    padding: tuple[int, ...],
    fill: float,
) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Yield each kernel position with the values it sees: an array (N, C, *out), ``fill`` outside of ``src``."""
    spatial = src.shape[2:]
    reach = [(o - 1) * s + (k - 1) * (d + 1) + 1 for o, k, s, d in zip(out, kernel, strides, dilations, strict=True)]
    sizes = [max(r, left + size) for r, left, size in zip(reach, padding, spatial, strict=True)]
    padded = np.full((*src.shape[:2], *sizes), fill, src.dtype)
    inside: tuple[Any, ...] = (..., *(slice(a, a + size) for a, size in zip(padding, spatial, strict=True)))
    padded[inside] = src
    for position in itertools.product(*map(range, kernel)):
        window: tuple[Any, ...] = tuple(
            slice(at * (d + 1), at * (d + 1) + (o - 1) * s + 1, s)
            for at, d, o, s in zip(position, dilations, out, strides, strict=True)
        )
        yield position, padded[..., *window]
