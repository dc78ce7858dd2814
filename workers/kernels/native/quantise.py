"""Convert numbers between f32 and 8-bit integers by scale and zero point, one tensor or the sum of two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numba.core import types

from .integer_tile import SIZES, load_float, narrowed, store_lanes
from .integers import load_s32
from .vec import I64, LANES, Builder, Value, apply, fload, intrinsic, lanes_below, maximum, minimum, splat

#: Elements of one item of work.
CHUNK: Final = 4096
_RANGES: Final = {"u8": (0.0, 255.0), "s8": (-128.0, 127.0), "f32": (-np.inf, np.inf)}


def make(isa: str, first: str, second: str, result: str, rounds: bool = False) -> tuple[Callable[..., None], Any]:
    """Return the kernel for sources of two data types (the second nothing: none) and a result of a third.

    It ``rounds`` before the zero point is added, and then again.

    Arguments: addresses of the sources and of the result, then those of their scales (f32) and zero points (s32), source by
    source, each 0 for none; the number of elements; and as a float the least result before scale and zero point.
    One item of work is a piece of `CHUNK` elements.
    """
    convert = _make_convert(first, second, result, rounds)
    least, most = _RANGES[result]
    low_limit, high_limit = np.float32(least), np.float32(most)
    sizes = [SIZES.get(dtype, 0) for dtype in (first, second, result)]
    size0, size1, size2 = sizes

    def quantise(
        begin: int, end: int, src0: int, src1: int, dst: int, scale0: int, point0: int, scale1: int, point1: int,
        scale2: int, point2: int, count: int, low: float,
    ) -> None:  # fmt: skip
        factor0, factor1, divisor = np.float32(1.0), np.float32(1.0), np.float32(1.0)
        minus0, minus1, plus = np.float32(0.0), np.float32(0.0), np.float32(0.0)
        if scale0 != 0:
            factor0 = fload(scale0)
        if scale1 != 0:
            factor1 = fload(scale1)
        if scale2 != 0:
            divisor = fload(scale2)
        if point0 != 0:
            minus0 = np.float32(load_s32(point0))
        if point1 != 0:
            minus1 = np.float32(load_s32(point1))
        if point2 != 0:
            plus = np.float32(load_s32(point2))
        bound = np.float32(low)
        for item in range(begin, end):
            for at in range(item * CHUNK, min(count, (item + 1) * CHUNK), 16):
                convert(src0 + at * size0, src1 + at * size1, dst + at * size2, count - at, factor0, minus0, factor1,
                        minus1, divisor, plus, bound, low_limit, high_limit)  # fmt: skip

    return quantise, types.void(*[types.int64] * 12, types.float64)


def _make_convert(first: str, second: str, result: str, rounds: bool) -> Any:
    """Return the intrinsic that converts up to 16 elements."""

    @intrinsic
    def convert(
        _: Any, src0: Any, src1: Any, dst: Any, count: Any, factor0: Any, minus0: Any, factor1: Any, minus1: Any,
        divisor: Any, plus: Any, bound: Any, low: Any, high: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            src0, src1, dst, count, *numbers = a
            factor0, minus0, factor1, minus1, divisor, plus, bound, low, high = (splat(b, n) for n in numbers)

            def piece(mask: Value | None) -> None:
                value = b.fmul(b.fsub(load_float(b, src0, first, mask), minus0), factor0)
                if second:
                    value = b.fadd(value, b.fmul(b.fsub(load_float(b, src1, second, mask), minus1), factor1))
                value = b.fdiv(maximum(b, bound, value), divisor)
                value = b.fadd(apply(b, "rint", value) if rounds else value, plus)
                if result != "f32":
                    # In this order, NaN becomes the least number, as in ONNX's QuantizeLinear.
                    value = minimum(b, maximum(b, value, low), high)
                store_lanes(b, dst, narrowed(b, value, result), mask)

            with b.if_else(b.icmp_signed("<", count, I64(LANES))) as (part, whole):
                with part:
                    piece(lanes_below(b, count))
                with whole:
                    piece(None)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4, *[types.float32] * 9), emit

    return convert
