"""The best boxes of each class, without those that overlap a better one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import NonMaxSuppression

Array = NDArray[Any]


def non_max_suppression(op: NonMaxSuppression, boxes: Array, scores: Array, limits: Array) -> tuple[Array, Array]:
    """Return rows of image, class and box, with zeros behind them, and their number."""
    rows = []
    for image in range(scores.shape[0]):
        low, high = corners(boxes[image], op.center_point)
        for number, given in enumerate(scores[image]):
            kept: list[int] = []
            for box in np.argsort(-given, kind="stable"):
                if not len(kept) + 1 <= min(limits[0], op.most) or not given[box] > limits[2]:
                    break
                if all(overlap(low[box], high[box], low[each], high[each]) <= limits[1] for each in kept):
                    kept.append(int(box))
            rows += [(image, number, box) for box in kept]
    found = np.zeros(op.indices.dims)
    found[: len(rows)] = np.asarray(rows, np.float64).reshape(-1, 3)
    return found, np.asarray([len(rows)], np.float64)


def corners(boxes: Array, centred: bool) -> tuple[Array, Array]:
    """Return the lower and the upper corner of each box."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if centred:
        return first - second / 2, first + second / 2
    return np.minimum(first, second), np.maximum(first, second)


def overlap(low: Array, high: Array, least: Array, most: Array) -> float:
    """Return the intersection over union of two boxes, less than all limits if there is none."""
    common = np.minimum(high, most) - np.maximum(low, least)
    sizes = high - low, most - least
    if min(common) <= 0 or any(min(each) <= 0 for each in sizes):
        return -np.inf
    shared = float(np.prod(common))
    return shared / (float(np.prod(sizes[0])) + float(np.prod(sizes[1])) - shared)
