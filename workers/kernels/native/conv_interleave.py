"""Copy activations of few channels, in any plain layout, into padded rows with the channels of a pixel side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .vec import fload, fstore


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of src and dst (images, slabs, rows, columns, channels); images' channels, depth, height, width; the
    strides of src in bytes for image, channel, slab, row and column; slabs, rows and columns of dst; padding ``front``,
    ``top`` and ``left``. One item of work is one row.
    """

    def interleave(
        begin: int, end: int, src: int, dst: int, channels: int, depth: int, height: int, width: int, image_stride: int,
        channel_stride: int, slab_stride: int, row_stride: int, column_stride: int, slabs: int, rows: int, columns: int,
        front: int, top: int, left: int,
    ) -> None:  # fmt: skip
        zero = np.float32(0.0)
        pixel = channels * 4
        for item in range(begin, end):
            h = item % rows - top
            slab = item // rows
            image, d = slab, -front
            if slabs > 1:
                image = slab // slabs
                d += slab - image * slabs
            to = dst + item * columns * pixel
            first = columns
            last = columns
            if 0 <= h < height and 0 <= d < depth:
                first = min(columns, left)
                last = max(first, min(columns, left + width))
            for i in range(first * channels):
                fstore(to + i * 4, zero)
            source = src + image * image_stride + d * slab_stride + h * row_stride
            for channel in range(channels):
                at = source + channel * channel_stride
                place = to + first * pixel + channel * 4
                for i in range(last - first):
                    fstore(place + i * pixel, fload(at + i * column_stride))
            for i in range(last * channels, columns * channels):
                fstore(to + i * 4, zero)

    return interleave, types.void(*[types.int64] * 19)
