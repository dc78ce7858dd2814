"""Maxima of windows of 64-bit integers, compared as such: float64 holds them up to 2**53. A work item is a row of dst."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import types
from .pooling import DIM, dimension, inside, next_row, row_of
from .reference.scalars import write_64
from .vec import iload

_LEAST = -(2**63)
_BYTES = 8


def make(isa: str, dtype: str, lanes: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel for ``lanes`` channels beside one another, 1 or 16, and its signature.

    Arguments are those of `pooling`'s kernel for blocks. A window without an element is the least number.
    """
    # Numbers without sign are in the order of those with a sign if their first bit is inverted.
    sign = _LEAST if dtype == "u64" else 0

    def kernel(begin: int, end: int, src: int, dst: int, table: int, period: int, tail: int) -> None:
        depth, out_depth, window_d, stride_d, step_d, left_d = dimension(table)
        height, out_height, window_h, stride_h, step_h, left_h = dimension(table + DIM)
        width, out_width, window_w, stride_w, step_w, left_w = dimension(table + 2 * DIM)
        block, out_d, out_h = row_of(begin, out_depth, out_height)
        for item in range(begin, end):
            first_h = out_h * stride_h - left_h
            first_d = out_d * stride_d - left_d
            from_d, to_d = inside(first_d, step_d, window_d, depth)
            from_h, to_h = inside(first_h, step_h, window_h, height)
            kept = tail if block % period == period - 1 else lanes
            target = dst + _BYTES * lanes * item * out_width
            for w in range(out_width):
                first_w = w * stride_w - left_w
                from_w, to_w = inside(first_w, step_w, window_w, width)
                for lane in range(lanes):
                    largest = _LEAST
                    for d in range(from_d, to_d):
                        plane = (block * depth + first_d + d * step_d) * height + first_h
                        for h in range(from_h, to_h):
                            line = (plane + h * step_h) * width + first_w
                            for tap in range(from_w, to_w):
                                if lane < kept:
                                    number = (line + tap * step_w) * lanes + lane
                                    largest = max(largest, iload(src + _BYTES * number) ^ sign)
                    result = largest ^ sign if lane < kept else 0
                    write_64(target + _BYTES * (w * lanes + lane), result)
            block, out_d, out_h = next_row(block, out_d, out_h, out_depth, out_height)

    return kernel, types.void(*[types.int64] * 7)
