"""A tensor as bytes with the scale and zero point of its range; one item for all of it. Each step is rounded to float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .byte_range import byte_of, narrow, point_of, step_of
from .data_types import store
from .epilogue import fetch
from .tensor import base, dtype, where


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, scale, zero point, elements, operands)."""

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
        step = step_of(least, most)
        point = point_of(least, step)
        for number in range(count):
            result = byte_of(fetch(operands, src, number), step, point)
            store(base(operands, dst) + where(dst, number), dtype(dst), result)
        store(base(operands, scale), dtype(scale), step)
        store(base(operands, zero_point), dtype(zero_point), point)

    return dynamic_quantise, types.void(*[types.int64] * 7, types.voidptr)
