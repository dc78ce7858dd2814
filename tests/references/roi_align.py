"""RoiAlign, one part of a box after another, all samples of it at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import RoiAlign

Array = NDArray[Any]


def roi_align(op: RoiAlign, src: Array, boxes: Array, images: Array) -> Array:
    """Return what samples of each part are on average, or the greatest of their weighed elements, in float64."""
    kind: Any = np.float64 if op.boxes.dtype == "f64" else np.float32
    given = np.asarray(boxes, kind) * kind(op.scale) - kind(0.5 if op.half_pixel else 0.0)
    found = np.zeros(op.dst.dims)
    for box, (corners, image) in enumerate(zip(given, np.asarray(images, np.int64), strict=True)):
        if not 0 <= image < op.src.dims[0]:
            continue
        rows, columns = (_neighbours(op, corners[1 - axis], corners[3 - axis], axis, kind) for axis in range(2))
        plane = np.asarray(src[image], np.float64)
        for down, (lines, heights) in enumerate(rows):
            for across, (places, widths) in enumerate(columns):
                weighed = plane[:, lines[:, None], places] * (heights[:, None] * widths)
                if op.algorithm == "max" and weighed.size:
                    found[box, :, down, across] = weighed.max((1, 2))
                elif weighed.size:
                    # Each sample has two neighbours along a dimension.
                    found[box, :, down, across] = weighed.sum((1, 2)) * 4 / (len(lines) * len(places))
    return found


def _neighbours(op: RoiAlign, start: Any, end: Any, axis: int, kind: Any) -> list[tuple[Array, Array]]:
    """Return both neighbours of each sample of each part along a dimension, and their weights."""
    size, parts = op.src.dims[2 + axis], op.dst.dims[2 + axis]
    length = kind(end - start)
    if not op.half_pixel:
        length = max(length, kind(1))
    number = op.samples or (max(1, int(np.ceil(length / kind(parts)))) if length > 0 else 0)
    found = []
    for part in range(parts):
        at = float(start) + float(length) * (part + (np.arange(number) + 0.5) / max(number, 1)) / parts
        inside, held = (at >= -1) & (at <= size), np.clip(at, 0, size - 1)
        first = np.floor(held).astype(np.int64)
        second, ratio = np.minimum(first + 1, size - 1), held - first
        weights = np.stack([(1 - ratio) * inside, ratio * inside], 1)
        found.append((np.stack([first, second], 1).reshape(-1), weights.reshape(-1)))
    return found
