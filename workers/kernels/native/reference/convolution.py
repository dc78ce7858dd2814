"""Convolve, forward or transposed: an item is an element of the result, which gathers its terms.

Transposed, the window runs from src to dst: that is deconvolution, and the gradient of a convolution's src, whose weights
have the channels swapped. An inner product is a convolution with a kernel of src's size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .data_types import load
from .epilogue import finish, quantised
from .tensor import at, base, dim, dtype, rank
from .window import kernel_size, positions, tap, tap_back


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, weights, dst, chain, window, groups, transposed, swapped, operands)."""

    def convolution(
        begin: int, end: int, src: int, weights: int, dst: int, chain: int, window: int,
        groups: int, transposed: int, swapped: int, operands: Any,
    ) -> None:  # fmt: skip
        axes = rank(dst)
        inputs, outputs = dim(src, 1) // groups, dim(dst, 1) // groups
        src_base, weights_base = base(operands, src), base(operands, weights)
        src_type, weights_type = dtype(src), dtype(weights)
        kernel = positions(window, axes)
        for item in range(begin, end):
            total = 0.0
            for position in range(kernel):
                index, number, area = item, 0, 1
                src_place, weights_place, rest, seen = src_base, weights_base, position, True
                for axis in range(axes - 1, 1, -1):
                    outer, further = index // dim(dst, axis), rest // kernel_size(window, axis)
                    here, through = index - outer * dim(dst, axis), rest - further * kernel_size(window, axis)
                    if transposed:
                        there = tap_back(window, axis, here, through, dim(src, axis))
                    else:
                        there = tap(window, axis, here, through, dim(src, axis))
                    if there < 0:
                        seen = False
                    else:
                        src_place += at(src, axis, there)
                        weights_place += at(weights, axis, through)
                        number += there * area
                        area *= dim(src, axis)
                    index, rest = outer, further
                if seen:
                    image = index // dim(dst, 1)
                    channel = index - image * dim(dst, 1)
                    group = channel // outputs
                    src_place += at(src, 0, image)
                    for number_in in range(inputs):
                        source = group * inputs + number_in
                        first, second = channel, number_in
                        if swapped:
                            first, second = source, channel - group * outputs
                        a = load(src_place + at(src, 1, source), src_type)
                        a = quantised(operands, src, (image * dim(src, 1) + source) * area + number, a)
                        b = load(weights_place + at(weights, 0, first) + at(weights, 1, second), weights_type)
                        b = quantised(operands, weights, (first * dim(weights, 1) + second) * kernel + position, b)
                        total += a * b
            finish(operands, dst, chain, item, total)

    return convolution, types.void(*[types.int64] * 10, types.voidptr)
