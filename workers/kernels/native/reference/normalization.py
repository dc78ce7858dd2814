"""Normalise by mean and variance, of batches, layers or groups alike; an item is one mean, with all that it belongs to.

Elements are named by their row-major numbers; `rows` says which of them belong together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..compiler import types
from .data_types import store
from .epilogue import element, finish
from .rows import channel_of, length, numbered
from .tensor import base, dtype, where


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Its arguments: src, mean, variance, scale, shift, dst, workspace, chain, rows, given, relu, centered, epsilon, operands. An
    absent operand is 0: mean and variance that are neither given nor wanted, scale, shift, workspace. If not ``centered``, the
    mean is 0.
    """

    def normalization(
        begin: int, end: int, src: int, mean: int, variance: int, scale: int, shift: int, dst: int, workspace: int,
        chain: int, rows: int, given: int, relu: int, centered: int, epsilon: float, operands: Any,
    ) -> None:  # fmt: skip
        count = length(rows)
        for item in range(begin, end):
            middle, spread = 0.0, 0.0
            if given:
                middle = element(operands, mean, item) if centered else 0.0
                spread = element(operands, variance, item)
            elif count > 0:
                if centered:
                    for index in range(count):
                        middle += element(operands, src, numbered(rows, item, index))
                    middle /= float(count)
                for index in range(count):
                    distance = element(operands, src, numbered(rows, item, index)) - middle
                    spread += distance * distance
                spread /= float(count)
            if mean != 0 and not given:
                store(base(operands, mean) + where(mean, item), dtype(mean), middle)
            if variance != 0 and not given:
                store(base(operands, variance) + where(variance, item), dtype(variance), spread)
            deviation = np.sqrt(spread + epsilon)
            for index in range(count):
                number = numbered(rows, item, index)
                channel = channel_of(rows, number)
                value = (element(operands, src, number) - middle) / deviation
                if scale != 0:
                    value *= element(operands, scale, channel)
                if shift != 0:
                    value += element(operands, shift, channel)
                if relu:
                    negative = value <= 0.0
                    if negative:
                        value = 0.0
                    if workspace != 0:
                        place = base(operands, workspace) + where(workspace, number)
                        store(place, dtype(workspace), 0.0 if negative else 1.0)
                finish(operands, dst, chain, number, value)

    return normalization, types.void(*[types.int64] * 14, types.float64, types.voidptr)
