"""Pool samples of an image in each part of boxes; an item is an element of the destination.

Lengths of boxes are float32 unless boxes are f64 (``wide``). There are as many samples a part along a dimension as it has
elements if ``samples`` is 0. With ``greatest`` the result is the greatest of all weighed elements, else the mean of samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..compiler import types
from ..roi_places import first_sample, last_sample, samples_of
from .epilogue import element, fetch, finish
from .tensor import dim


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, boxes, images, dst, chain, wide, greatest, samples, half pixels, scale, operands)."""

    def roi_align(
        begin: int, end: int, src: int, boxes: int, images: int, dst: int, chain: int, wide: int, greatest: int,
        samples: int, half: int, scale: float, operands: Any,
    ) -> None:  # fmt: skip
        channels, height, width = dim(src, 1), dim(src, 2), dim(src, 3)
        tall, broad = dim(dst, 2), dim(dst, 3)
        for item in range(begin, end):
            rest = item // broad
            part_x = item - rest * broad
            plane = rest // tall
            part_y = rest - plane * tall
            box = plane // channels
            image = int(element(operands, images, box))
            x = _end(operands, boxes, 4 * box, wide, half, scale)
            y = _end(operands, boxes, 4 * box + 1, wide, half, scale)
            long = _length(x, _end(operands, boxes, 4 * box + 2, wide, half, scale), wide, half)
            high = _length(y, _end(operands, boxes, 4 * box + 3, wide, half, scale), wide, half)
            across = samples_of(x, long, _ratio(long, broad, wide), samples)
            down = samples_of(y, high, _ratio(high, tall, wide), samples)
            value = 0.0
            if image >= 0 and image < dim(src, 0) and across * down > 0:
                step_x, step_y = long / float(broad * across), high / float(tall * down)
                x += float(part_x) * (long / float(broad))
                y += float(part_y) * (high / float(tall))
                first_x, last_x = (
                    first_sample(x, step_x, across, samples),
                    last_sample(x, step_x, width, across, samples),
                )
                first_y, last_y = first_sample(y, step_y, down, samples), last_sample(y, step_y, height, down, samples)
                # Of the greatest, samples outside are zeros.
                some = last_x - first_x < across or last_y - first_y < down
                value = -np.inf if greatest and not some else 0.0
                first = ((image * channels) + plane - box * channels) * height * width
                for one in range(first_y, last_y):
                    for other in range(first_x, last_x):
                        at_y, at_x = y + (float(one) + 0.5) * step_y, x + (float(other) + 0.5) * step_x
                        inside = at_y >= -1.0 and at_y <= float(height) and at_x >= -1.0 and at_x <= float(width)
                        if greatest and not inside:
                            value = max(value, 0.0)
                        if inside:
                            near_y, near_x = _first(at_y, height), _first(at_x, width)
                            ratio_y, ratio_x = _share(at_y, height), _share(at_x, width)
                            for corner in range(4):
                                row = min(near_y + corner // 2, height - 1)
                                column = min(near_x + (corner & 1), width - 1)
                                weight = (ratio_y if corner // 2 else 1.0 - ratio_y) * (
                                    ratio_x if corner & 1 else 1.0 - ratio_x
                                )
                                weighed = weight * fetch(operands, src, first + row * width + column)
                                value = max(value, weighed) if greatest else value + weighed
                if not greatest:
                    value /= float(across) * float(down)
            finish(operands, dst, chain, item, value)

    return roi_align, types.void(*[types.int64] * 11, types.float64, types.voidptr)


def _end(operands: Any, boxes: int, number: int, wide: int, half: int, scale: float) -> float:
    """Return an end of a box in elements."""
    given, shift = element(operands, boxes, number), 0.5 if half else 0.0
    if wide:
        return given * scale - shift
    return np.float64(np.float32(given) * np.float32(scale) - np.float32(shift))


def _length(start: float, end: float, wide: int, half: int) -> float:
    length = end - start if wide else np.float64(np.float32(end) - np.float32(start))
    return length if half or length > 1.0 else 1.0


def _ratio(length: float, parts: int, wide: int) -> float:
    """Return the elements of a part."""
    return length / float(parts) if wide else np.float64(np.float32(length) / np.float32(parts))


def _first(place: float, size: int) -> int:
    """Return the first of the two elements around a place."""
    return min(int(max(place, 0.0)), size - 1)


def _share(place: float, size: int) -> float:
    """Return the weight of the second of the two elements around a place."""
    held = max(place, 0.0)
    return 0.0 if held >= float(size - 1) else held - np.floor(held)
