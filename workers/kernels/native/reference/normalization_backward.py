"""The gradient of a normalisation's src; an item is one mean, with all elements that it was computed from.

With e the gradient of the normalised values z = (x - mean) / deviation: diff_src = (e - mean(e) - z * mean(e * z)) /
deviation; if the statistics were given, e / deviation. Without an operand for the mean it is 0, and mean(e) is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..compiler import types
from .epilogue import element, finish
from .rows import channel_of, length, numbered


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, mean, variance, scale, diff_dst, workspace, diff_src, chain, rows, given, epsilon, operands)."""

    def normalization_backward(
        begin: int, end: int, src: int, mean: int, variance: int, scale: int, diff_dst: int, workspace: int,
        diff_src: int, chain: int, rows: int, given: int, epsilon: float, operands: Any,
    ) -> None:  # fmt: skip
        count = length(rows)
        for item in range(begin, end):
            middle = element(operands, mean, item) if mean != 0 else 0.0
            deviation = np.sqrt(element(operands, variance, item) + epsilon)
            error_sum, along_sum = 0.0, 0.0
            if not given:
                for index in range(count):
                    number = numbered(rows, item, index)
                    error = _scaled(operands, diff_dst, workspace, scale, rows, number)
                    if mean != 0:
                        error_sum += error
                    along_sum += error * (element(operands, src, number) - middle) / deviation
            for index in range(count):
                number = numbered(rows, item, index)
                value = _scaled(operands, diff_dst, workspace, scale, rows, number)
                if not given:
                    along = (element(operands, src, number) - middle) / deviation
                    value -= (error_sum + along * along_sum) / float(count)
                finish(operands, diff_src, chain, number, value / deviation)

    return normalization_backward, types.void(*[types.int64] * 12, types.float64, types.voidptr)


def masked(operands: Any, diff_dst: int, workspace: int, number: int) -> float:
    """Return the gradient of an element of dst, 0 if a fused relu has cut it off."""
    if workspace != 0 and element(operands, workspace, number) == 0.0:
        return 0.0
    return element(operands, diff_dst, number)


def _scaled(operands: Any, diff_dst: int, workspace: int, scale: int, rows: int, number: int) -> float:
    """Return the gradient of an element before scale and shift."""
    error = masked(operands, diff_dst, workspace, number)
    return error * element(operands, scale, channel_of(rows, number)) if scale != 0 else error
