"""Sum the gradients of a convolution's weights; an item is one weight, or one bias if there is no src."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .data_types import load
from .epilogue import finish
from .tensor import at, base, dim, dtype, rank
from .window import kernel_size, positions, tap


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src or 0, diff_dst, gradient, chain, window, groups, operands)."""

    def convolution_weights(
        begin: int, end: int, src: int, diff_dst: int, gradient: int, chain: int, window: int, groups: int,
        operands: Any,
    ) -> None:  # fmt: skip
        axes = rank(diff_dst)
        outputs = dim(diff_dst, 1) // groups
        kernel = positions(window, axes)
        area = 1
        for axis in range(2, axes):
            area *= dim(diff_dst, axis)
        for item in range(begin, end):
            output, number_in, position = item, 0, 0
            if src != 0:
                row = item // kernel
                position = item - row * kernel
                output = row // dim(gradient, 1)
                number_in = row - output * dim(gradient, 1)
            total = 0.0
            for where in range(area):
                dst_place = base(operands, diff_dst) + at(diff_dst, 1, output)
                src_place, index, rest, seen = 0, where, position, True
                if src != 0:
                    source = output // outputs * dim(gradient, 1) + number_in
                    src_place = base(operands, src) + at(src, 1, source)
                for axis in range(axes - 1, 1, -1):
                    outer, further = index // dim(diff_dst, axis), rest // kernel_size(window, axis)
                    here, through = index - outer * dim(diff_dst, axis), rest - further * kernel_size(window, axis)
                    dst_place += at(diff_dst, axis, here)
                    if src != 0:
                        there = tap(window, axis, here, through, dim(src, axis))
                        if there < 0:
                            seen = False
                        else:
                            src_place += at(src, axis, there)
                    index, rest = outer, further
                if seen:
                    for image in range(dim(diff_dst, 0)):
                        error = load(dst_place + at(diff_dst, 0, image), dtype(diff_dst))
                        if src != 0:
                            error *= load(src_place + at(src, 0, image), dtype(src))
                        total += error
            finish(operands, gradient, chain, item, total)

    return convolution_weights, types.void(*[types.int64] * 8, types.voidptr)
