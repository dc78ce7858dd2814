"""Samples of images at the places of a grid, all places at once."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import GridSample

Array = NDArray[Any]


def grid_sample(op: GridSample, src: Array, grid: Array) -> Array:
    """Return sums of neighbours times their weights, in float64."""
    axes = [
        _neighbours(op, np.asarray(grid[..., -1 - axis], np.float64), size) for axis, size in enumerate(src.shape[2:])
    ]
    found = np.zeros(op.dst.dims)
    images = np.arange(src.shape[0]).reshape(-1, *[1] * (src.ndim - 2))
    rows = np.moveaxis(np.asarray(src, np.float64), 1, -1)
    for taps in itertools.product(*axes):
        index, weight = tuple(place for place, _, _ in taps), np.prod([share for _, share, _ in taps], axis=0)
        inside = np.all([each for _, _, each in taps], axis=0)
        values = np.where(inside[..., None], rows[(images, *index)], 0.0)
        found += np.moveaxis(values * np.where(inside, weight, 0.0)[..., None], -1, 1)
    return found


def _neighbours(op: GridSample, grid: Array, size: int) -> list[tuple[Array, Array, Array]]:
    """Return the index, the weight and whether it is inside of each neighbour along a dimension."""
    place = (grid + 1) / 2 * (size - 1) if op.align_corners else ((grid + 1) * size - 1) / 2
    if op.algorithm == "nearest":
        place = np.rint(place)
    if op.algorithm != "cubic":
        place = _moved(op, place, size)
    first = place if op.algorithm == "nearest" else np.floor(place)
    ratio = place - first
    if op.algorithm == "nearest":
        taps = [(0, np.ones_like(ratio))]
    elif op.algorithm == "linear":
        taps = [(0, 1 - ratio), (1, ratio)]
    else:
        taps = [(step, _keys(np.abs(ratio - step))) for step in (-1, 0, 1, 2)]
    found = []
    for step, weight in taps:
        near = _moved(op, first + step, size)
        inside = (near >= 0) & (near < size)
        found.append((np.where(inside, near, 0).astype(np.int64), weight, inside))
    return found


def _keys(x: Array) -> Array:
    """Return the weights of cubic convolution, whose slope one element away is -0.75."""
    a = -0.75
    return np.where(x <= 1, (a + 2) * x**3 - (a + 3) * x**2 + 1, a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a)


def _moved(op: GridSample, place: Array, size: int) -> Array:
    if op.padding == "reflection":
        low, span = (0.0, size - 1.0) if op.align_corners else (-0.5, float(size))
        if span:
            away = np.mod(place - low, 2 * span)
            place = np.minimum(away, 2 * span - away) + low
    return place if op.padding == "zeros" else np.clip(place, 0, size - 1)
