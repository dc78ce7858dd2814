"""Depthwise deconvolution of row-major planes by long strides: neighbours in dst see one element of src by neighbouring taps.

A work item is a row of dst. The elements of a row that see the same elements of src are as many as the stride is long: vectors of
them are products of one element of src and a vector of weights. Sizes are numbers at run time, so the code is short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import functions
from .compiler import types
from .first_lanes import vstore_part
from .vec import vbroadcast, vfma, vload, vload_part, vset, vstore


def make(isa: str, chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of src, weights (channels, slabs, rows, columns), bias (0: none), dst and the source of a binary post-op;
    channels of dst, and of these for a channel of src; slabs, rows and columns of src, of dst, of the kernel, of strides and of
    padding at the beginning.
    """
    finish = functions.post_ops_part(chain, "f32")
    # What is added may be in the memory of dst, of which no element may be stored before it is read.
    whole = all(kind == "eltwise" for kind, *_ in chain)

    def wide(
        begin: int, end: int, src: int, weights: int, bias: int, dst: int, other: int, channels: int, shared: int,
        depth: int, height: int, width: int, out_depth: int, out_height: int, out_width: int, kernel_d: int, kernel_h: int,
        kernel_w: int, stride_d: int, stride_h: int, stride_w: int, pad_d: int, pad_h: int, pad_w: int,
    ) -> None:  # fmt: skip
        # Taps that an element sees at most
        taps_d, taps_h, taps_w = (
            (kernel_d + stride_d - 1) // stride_d, (kernel_h + stride_h - 1) // stride_h, (kernel_w + stride_w - 1) // stride_w
        )  # fmt: skip
        last_column = (out_width - 1 + pad_w) // stride_w
        for item in range(begin, end):
            rest = item // out_height
            plane = rest // out_depth
            channel = plane % channels
            # The first tap that sees an element, and the row that it sees: each further tap sees the row before.
            y, z = item - rest * out_height + pad_h, rest - plane * out_depth + pad_d
            row, slab = y // stride_h, z // stride_d
            tap_h, tap_d = y - row * stride_h, z - slab * stride_d
            source = src + 4 * (plane // shared) * depth * height * width
            taps = weights + 4 * channel * kernel_d * kernel_h * kernel_w
            start = vset(np.float32(0.0))
            if bias != 0:
                start = vbroadcast(bias + 4 * channel)
            for column in range(pad_w // stride_w, last_column + 1):
                first = max(0, column * stride_w - pad_w)
                count = min(out_width, (column + 1) * stride_w - pad_w) - first
                phase = first + pad_w - column * stride_w
                for index in range(0, count, 16):
                    value, left = start, count - index
                    for turn in range(taps_d * taps_h):
                        turn_d = turn // taps_h if taps_d > 1 else 0
                        turn_h = turn - turn_d * taps_h
                        seen_d, seen_h = slab - turn_d, row - turn_h
                        d, h = tap_d + turn_d * stride_d, tap_h + turn_h * stride_h
                        if d < kernel_d and h < kernel_h and 0 <= seen_d < depth and 0 <= seen_h < height:
                            line = source + 4 * (seen_d * height + seen_h) * width
                            factors = taps + 4 * (d * kernel_h + h) * kernel_w
                            tap, seen = phase + index, column
                            for _ in range(taps_w):
                                if 0 <= seen < width:
                                    if tap + 16 <= kernel_w:
                                        value = vfma(vload(factors + 4 * tap), vbroadcast(line + 4 * seen), value)
                                    elif tap < kernel_w:
                                        factor = vload_part(factors + 4 * tap, kernel_w - tap)
                                        value = vfma(factor, vbroadcast(line + 4 * seen), value)
                                tap += stride_w
                                seen -= 1
                    at = 4 * (item * out_width + first + index)
                    value = finish(value, other + at, min(16, left))
                    if left >= 16 or (whole and first + index + 16 <= out_width):
                        # The next elements overwrite what is behind these: stores of part of a vector are slow.
                        vstore(dst + at, value)
                    else:
                        vstore_part(dst + at, value, left)

    return wide, types.void(*[types.int64] * 24)
