"""Maxima of windows of 64-bit integers, which float64 does not hold: problems and their results in integers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import MemoryDesc, Pooling


def long_maxima(
    rng: np.random.Generator, dtype: str, axes: int, tag: str, prop: str = "forward_inference"
) -> tuple[Pooling, NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return a problem drawn at random, its src, its dst, and the first winner of each window by its number in it."""
    kind = np.uint64 if dtype == "u64" else np.int64
    size = [int(n) for n in rng.integers(3, 9, axes)]
    kernel = tuple(int(rng.integers(1, min(n, 4) + 1)) for n in size)
    strides, dilations = (tuple(int(n) for n in rng.integers(low, 3, axes)) for low in (1, 0))
    left = tuple(int(rng.integers(0, k)) for k in kernel)
    reach = [(k - 1) * (d + 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = [max(1, (n + pad - r) // s + 1) for n, pad, r, s in zip(size, left, reach, strides, strict=True)]
    right = tuple((o - 1) * s + r - n - pad for o, s, r, n, pad in zip(out, strides, reach, size, left, strict=True))
    channels = int(rng.integers(1, 20))
    limits = np.iinfo(kind)
    anchors = (int(limits.max) - 9, int(limits.min) + 9, 2**53 + 5, 2**62)
    anchor = anchors[int(rng.integers(len(anchors)))]
    near = rng.integers(-9, 10, (2, channels, *size))
    src = np.array([anchor + int(n) for n in near.flat], kind).reshape(near.shape)
    dst = np.full((2, channels, *out), limits.min, kind)
    winners = np.zeros(dst.shape, np.int64)
    for place in np.ndindex(*dst.shape):
        best: int | None = None
        for number, tap in enumerate(itertools.product(*map(range, kernel))):
            geometry = zip(place[2:], strides, left, tap, dilations, strict=True)
            at = tuple(o * s - pad + t * (d + 1) for o, s, pad, t, d in geometry)
            if all(0 <= a < n for a, n in zip(at, size, strict=True)):
                found = int(src[place[:2] + at])
                if best is None or found > best:
                    best, winners[place] = found, number
        if best is not None:
            dst[place] = best
    right = tuple(max(0, pad) for pad in right)
    md = [MemoryDesc(array.shape, dtype, tag) for array in (src, dst)]
    return Pooling(md[0], md[1], "max", kernel, strides, dilations, left, right, prop), src, dst, winners
