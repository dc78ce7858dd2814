"""Convolution straight from its definition, output by output: any groups, dilation and padding, up to 3 dimensions.

It is slow, and serves shapes that the blocked kernels do not take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .vec import fload, fstore, iload


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of src, weights (row-major), bias (0: none), dst, residual (0: none) and of a table of sizes;
    the lower bounds before and after the residual is added. The table holds, as int64: groups, input and output
    channels a group, padded output channels; for depth, height and width each the size of src, of dst, of the kernel,
    stride, dilation (1: dense) and left padding; then for src and dst the lanes of a channel block and the strides in
    bytes of image, block, depth, row and column. One item of work is a row of outputs.
    """

    def direct(
        begin: int, end: int, src: int, weights: int, bias: int, dst: int, residual: int, table: int, low: float,
        bound: float,
    ) -> None:  # fmt: skip
        inputs = iload(table + 8)
        outputs = iload(table + 16)
        padded = iload(table + 24)
        channels = iload(table) * outputs
        depth, height, width = iload(table + 32), iload(table + 40), iload(table + 48)
        out_depth, out_height, out_width = iload(table + 56), iload(table + 64), iload(table + 72)
        kernel_d, kernel_h, kernel_w = iload(table + 80), iload(table + 88), iload(table + 96)
        stride_d, stride_h, stride_w = iload(table + 104), iload(table + 112), iload(table + 120)
        dilation_d, dilation_h, dilation_w = iload(table + 128), iload(table + 136), iload(table + 144)
        front, top, left = iload(table + 152), iload(table + 160), iload(table + 168)
        src_lanes, src_image, src_block = iload(table + 176), iload(table + 184), iload(table + 192)
        src_depth, src_row, src_column = iload(table + 200), iload(table + 208), iload(table + 216)
        dst_lanes, dst_image, dst_block = iload(table + 224), iload(table + 232), iload(table + 240)
        dst_depth, dst_row, dst_column = iload(table + 248), iload(table + 256), iload(table + 264)
        taps = kernel_d * kernel_h * kernel_w * 4
        low32 = np.float32(low)
        bound32 = np.float32(bound)
        for item in range(begin, end):
            oh = item % out_height
            od = (item // out_height) % out_depth
            oc = (item // (out_height * out_depth)) % padded
            image = item // (out_height * out_depth * padded)
            row = image * dst_image + oc // dst_lanes * dst_block + oc % dst_lanes * 4 + od * dst_depth + oh * dst_row
            for ow in range(out_width):
                to = row + ow * dst_column
                value = np.float32(0.0)
                if oc >= channels:
                    fstore(dst + to, value)
                    continue
                if bias != 0:
                    value = fload(bias + oc * 4)
                for ic in range(inputs):
                    channel = oc // outputs * inputs + ic
                    plane = src + image * src_image + channel // src_lanes * src_block + channel % src_lanes * 4
                    factors = weights + (oc * inputs + ic) * taps
                    for kd in range(kernel_d):
                        d = od * stride_d - front + kd * dilation_d
                        if d < 0 or d >= depth:
                            continue
                        for kh in range(kernel_h):
                            h = oh * stride_h - top + kh * dilation_h
                            if h < 0 or h >= height:
                                continue
                            for kw in range(kernel_w):
                                w = ow * stride_w - left + kw * dilation_w
                                if 0 <= w < width:
                                    factor = fload(factors + ((kd * kernel_h + kh) * kernel_w + kw) * 4)
                                    value += fload(plane + d * src_depth + h * src_row + w * src_column) * factor
                if residual != 0:
                    if value < low32:
                        value = low32
                    value += fload(residual + to)
                if value < bound32:
                    value = bound32
                fstore(dst + to, value)

    return direct, types.void(*[types.int64] * 8, types.float64, types.float64)
