"""The scale and zero point with which a range of floats becomes u8, as in ONNX's DynamicQuantizeLinear. All in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .bits import make_store
from .compiler import types
from .integers import store_s32
from .vec import fload, fstore

_BYTES: Final = {"u8": 1, "s32": 4}


def make(isa: str, point: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel; the zero point is stored as a data type.

    Arguments: the address of ranges, the least and the greatest number of each (f32, NaN: there is NaN), and how many;
    addresses of the scale (f32), of the zero point, and of the zero point as s32. One item of work is all.
    """
    store = make_store(_BYTES[point])

    def scale(begin: int, end: int, ranges: int, count: int, to_scale: int, to_point: int, to_s32: int) -> None:
        zero = np.float32(0.0)
        least, most, is_number = zero, zero, True
        for number in range(count):
            low, high = fload(ranges + 8 * number), fload(ranges + 8 * number + 4)
            is_number &= low == low
            if low < least:
                least = low
            if high > most:
                most = high
        if not is_number:
            least, most = zero, zero
        step = (most - least) / np.float32(255.0)
        # Nothing is divided by 0.
        if step == zero:
            step = np.float32(1.0)
        start = (zero - least) / step
        # An infinite range by an infinite step is no number.
        zero_point = 255
        if start < np.float32(255.0):
            zero_point = int(np.rint(np.float64(start)))
        fstore(to_scale, step)
        store(to_point, zero_point)
        store_s32(to_s32, zero_point)

    return scale, types.void(*[types.int64] * 7)
