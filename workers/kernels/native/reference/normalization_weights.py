"""The gradients of a normalisation's scale and shift; an item is a channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..compiler import types
from .epilogue import element, finish
from .normalization_backward import masked
from .rows import channel_length, channel_numbered, row_of


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, mean, variance, diff_dst, workspace, diff_scale, diff_shift, chain, rows, epsilon, operands)."""

    def normalization_weights(
        begin: int, end: int, src: int, mean: int, variance: int, diff_dst: int, workspace: int,
        diff_scale: int, diff_shift: int, chain: int, rows: int, epsilon: float, operands: Any,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            error_sum, along_sum = 0.0, 0.0
            for index in range(channel_length(rows)):
                number = channel_numbered(rows, item, index)
                row = row_of(rows, number)
                error = masked(operands, diff_dst, workspace, number)
                distance = element(operands, src, number)
                if mean != 0:
                    distance -= element(operands, mean, row)
                error_sum += error
                along_sum += error * distance / np.sqrt(element(operands, variance, row) + epsilon)
            if diff_scale != 0:
                finish(operands, diff_scale, chain, item, along_sum)
            if diff_shift != 0:
                finish(operands, diff_shift, chain, item, error_sum)

    return normalization_weights, types.void(*[types.int64] * 11, types.float64, types.voidptr)
