"""Pooling: maximum, and average over the whole window or over the part that lies inside the source."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Pooling

from .windows import taps

Array = NDArray[Any]


def pooling(op: Pooling, src: Array) -> Array:
    """Return dst (N, C, *spatial). A window wholly outside gives -inf (max) or 0 (avg); a maximum passes over NaN."""
    out = op.dst.dims[2:]
    geometry = (out, op.kernel, op.strides, op.dilations, op.padding_l)
    if op.algorithm == "max":
        largest = np.full(op.dst.dims, -np.inf)
        for _, seen in taps(src, *geometry, -np.inf):
            largest = np.fmax(largest, seen)
        return largest
    total = np.zeros(op.dst.dims)
    for _, seen in taps(src, *geometry, 0.0):
        total += seen
    return np.asarray(total / _counts(op))


def pooling_winners(op: Pooling, src: Array) -> Array:
    """Return the workspace of a maximum: the row-major number, in its window, of the first element that is largest.

    A window wholly outside has the number 0.
    """
    found = np.zeros(op.dst.dims, np.int32)
    for at in np.ndindex(op.dst.dims):
        best = -np.inf
        for index, (number, place) in enumerate(_window(op, at)):
            if src[place] > best or index == 0:
                found[at] = number
            best = np.fmax(best, src[place])
    return found


def pooling_backward(op: Pooling, diff_dst: Array, winners: Array | None) -> Array:
    """Return the gradient of src: each element of dst gives its gradient to the winner, or equal parts to its window."""
    diff_src = np.zeros(op.src.dims)
    counts = _counts(op)
    for at in np.ndindex(op.dst.dims):
        for number, place in _window(op, at):
            if winners is None:
                diff_src[place] += diff_dst[at] / counts[at]
            elif number == winners[at]:
                diff_src[place] += diff_dst[at]
    return diff_src


def _window(op: Pooling, at: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """Return (row-major number in the window, index in src) of what an element of dst sees."""
    found = []
    for number, position in enumerate(itertools.product(*map(range, op.kernel))):
        place = tuple(
            o * stride - left + k * (dilation + 1)
            for o, stride, left, k, dilation in zip(
                at[2:], op.strides, op.padding_l, position, op.dilations, strict=True
            )
        )
        if all(0 <= p < size for p, size in zip(place, op.src.dims[2:], strict=True)):
            found.append((number, (*at[:2], *place)))
    return found


def _counts(op: Pooling) -> Array:
    """Return by how much each element of dst divides its sum."""
    if op.algorithm != "avg_exclude_padding":
        return np.full(op.dst.dims, float(math.prod(op.kernel)))
    inside = np.zeros(op.dst.dims)
    for _, seen in taps(np.ones(op.src.dims), op.dst.dims[2:], op.kernel, op.strides, op.dilations, op.padding_l, 0.0):
        inside += seen
    return np.maximum(inside, 1.0)
