"""Pool samples of an image in each part of boxes: first sums of rows, as wide as the box, and then of their elements.

The weight of an element in a part is one of its row times one of its column, since each sample is. So is the greatest of weighed
elements the greatest of the rows' greatest. An item's room has, in this order: for both dimensions where the neighbours of each
part begin (int64), their places in bytes (int64) and their weights, then ``summed`` rows of sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .bits import make_load, make_store
from .compiler import types
from .compiler.language import inlined
from .elements import elements
from .roi_places import first_sample, last_sample, samples_of
from .vec import dload, dstore, fload, fstore, iload, vfma, vmax, vmul

_store_8 = make_store(8)


def make(isa: str, algorithm: str, dtype: str, wide: bool, long: bool, summed: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature, for f32 or f64, boxes of f64 if ``wide``, and ``long`` numbers of images.

    Rows of ``summed`` parts are summed before their elements are.
    """
    of, greatest = elements(dtype), algorithm == "max"
    size, real, fill = of.size, of.real, of.fill
    load, keep = (dload, dstore) if dtype == "f64" else (fload, fstore)
    box_real, box_load, box_size = (np.float64, dload, 8) if wide else (np.float32, fload, 4)
    image_size = 8 if long else 4
    load_image = make_load(image_size)
    none = real(-np.inf) if greatest else real(0.0)

    @inlined
    def add(places: int, weights: int, begin: int, count: int, place: int, weight: float) -> int:
        """Add a neighbour; the same element of a part is one neighbour, whose weights are added up."""
        if not greatest:
            for earlier in range(max(begin, count - 2), count):
                if iload(places + 8 * earlier) == place:
                    keep(weights + size * earlier, load(weights + size * earlier) + real(weight))
                    return count
        _store_8(places + 8 * count, place)
        keep(weights + size * count, real(weight))
        return count + 1

    def neighbours(
        room: int, most: int, start: float, length: float, parts: int, number: int, samples: int, extent: int, step: int
    ) -> int:
        """Write the neighbours of samples along a dimension, and return how many there are."""
        places = room + 8 * (parts + 1)
        weights = places + 8 * most
        count, part = 0, length / float(parts)
        share = 1.0 if greatest else 1.0 / float(max(number, 1))
        near = part * (1.0 / float(max(number, 1)))
        for each in range(parts):
            _store_8(room + 8 * each, count)
            if number > 0:
                begin, first = count, start + float(each) * part
                low, high = (
                    first_sample(first, near, number, samples),
                    last_sample(first, near, extent, number, samples),
                )
                outside = high - low < number
                for sample in range(low, high):
                    at = first + (float(sample) + 0.5) * near
                    if at >= -1.0 and at <= float(extent):
                        at = max(at, 0.0)
                        index = min(int(at), extent - 1)
                        ratio = at - float(index) if index < extent - 1 else 0.0
                        count = add(places, weights, begin, count, index * step, (1.0 - ratio) * share)
                        index = min(index + 1, extent - 1)
                        count = add(places, weights, begin, count, index * step, ratio * share)
                    else:
                        outside = True
                if greatest and outside:
                    # Samples outside are zeros.
                    count = add(places, weights, begin, count, 0, 0.0)
        _store_8(room + 8 * parts, count)
        return count

    @inlined
    def end_of(boxes: int, number: int, scale: float, half: int) -> Any:
        return box_load(boxes + box_size * number) * box_real(scale) - box_real(0.5 if half else 0.0)

    def kernel(
        begin: int, end: int, src: int, boxes: int, images: int, dst: int, scratch: int, batch: int, channels: int,
        height: int, width: int, tall: int, broad: int, samples: int, half: int, work: int, units: int, chunk: int,
        room: int, tall_room: int, broad_room: int, row_room: int, tall_most: int, broad_most: int, scale: float,
    ) -> None:  # fmt: skip
        downs = scratch + begin * room
        rights = downs + tall_room
        sums = rights + broad_room
        down_places, right_places = downs + 8 * (tall + 1), rights + 8 * (broad + 1)
        down_weights, right_weights = down_places + 8 * tall_most, right_places + 8 * broad_most
        pieces, plane, known = (channels + chunk - 1) // chunk, size * height * width, -1
        left, wide_bytes = 0, 0
        for unit in range(begin * units // work, end * units // work):
            box = unit // pieces
            channel = (unit - box * pieces) * chunk
            if box != known:
                known = box
                corners = boxes + 4 * box_size * box
                x, y = end_of(corners, 0, scale, half), end_of(corners, 1, scale, half)
                long_side = end_of(corners, 2, scale, half) - x
                high_side = end_of(corners, 3, scale, half) - y
                if half == 0:
                    long_side, high_side = max(long_side, box_real(1.0)), max(high_side, box_real(1.0))
                x_start, x_length = np.float64(x), np.float64(long_side)
                y_start, y_length = np.float64(y), np.float64(high_side)
                across = samples_of(x_start, x_length, np.float64(long_side / box_real(broad)), samples)
                down = samples_of(y_start, y_length, np.float64(high_side / box_real(tall)), samples)
                neighbours(downs, tall_most, y_start, y_length, tall, down, samples, height, size * width)
                count = neighbours(rights, broad_most, x_start, x_length, broad, across, samples, width, size)
                least, most = size * (width - 1), 0
                for each in range(count):
                    place = iload(right_places + 8 * each)
                    least, most = min(least, place), max(most, place)
                left, wide_bytes = least, most + size - least
                for each in range(count):
                    _store_8(right_places + 8 * each, iload(right_places + 8 * each) - left)
            image = load_image(images + image_size * box)
            inside = image >= 0 and image < batch
            for number in range(channel, min(channels, channel + chunk)):
                source = src + (image * channels + number) * plane + left
                target = dst + size * (box * channels + number) * tall * broad
                for top in range(0, tall, summed):
                    rows = min(summed, tall - top)
                    if inside:
                        for row in range(rows):
                            from_tap = iload(downs + 8 * (top + row))
                            to_tap = iload(downs + 8 * (top + row) + 8)
                            for at in range(0, wide_bytes, 16 * size):
                                value = fill(none)
                                for tap in range(from_tap, to_tap):
                                    place = source + iload(down_places + 8 * tap) + at
                                    weight = of.load_one(down_weights + size * tap)
                                    found = of.load_tail(place, min(16, (wide_bytes - at) // size))
                                    if greatest:
                                        value = vmax(value, vmul(found, weight))
                                    else:
                                        value = vfma(found, weight, value)
                                of.store(sums + row * row_room + at, value)
                    for part in range(broad):
                        from_tap, to_tap = iload(rights + 8 * part), iload(rights + 8 * part + 8)
                        for row in range(rows):
                            total = none
                            if inside and iload(downs + 8 * (top + row)) < iload(downs + 8 * (top + row) + 8):
                                for tap in range(from_tap, to_tap):
                                    held = load(sums + row * row_room + iload(right_places + 8 * tap))
                                    weighed = held * load(right_weights + size * tap)
                                    total = max(total, weighed) if greatest else total + weighed
                            if greatest and total == none:
                                total = real(0.0)
                            keep(target + size * ((top + row) * broad + part), total)

    return kernel, types.void(*[types.int64] * 24, types.float64)
