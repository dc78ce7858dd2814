"""A tensor as bytes with the scale and zero point of its range; one item for all of it. Each step is rounded to float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..compiler import types
from .data_types import store
from .epilogue import fetch
from .tensor import base, dtype, where


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, scale, zero point, elements, operands)."""

    def narrow(value: float) -> float:
        return np.float64(np.float32(value))

    def dynamic_quantise(
        begin: int, end: int, src: int, dst: int, scale: int, zero_point: int, count: int, operands: Any
    ) -> None:
        least, most, is_number = 0.0, 0.0, True
        for number in range(count):
            value = narrow(fetch(operands, src, number))
            is_number &= value == value
            if value < least:
                least = value
            if value > most:
                most = value
        if not is_number:
            least, most = 0.0, 0.0
        step = narrow(narrow(most - least) / 255.0)
        if step == 0.0:
            step = 1.0
        start = narrow(-least / step)
        # An infinite range by an infinite step is no number.
        point = 255.0
        if start < 255.0:
            point = np.rint(start)
        for number in range(count):
            found = np.rint(narrow(narrow(fetch(operands, src, number)) / step)) + point
            result = 0.0
            if found > 0.0:
                result = min(found, 255.0)
            store(base(operands, dst) + where(dst, number), dtype(dst), result)
        store(base(operands, scale), dtype(scale), step)
        store(base(operands, zero_point), dtype(zero_point), point)

    return dynamic_quantise, types.void(*[types.int64] * 7, types.voidptr)
