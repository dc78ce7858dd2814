"""Convert integers to f32 less their zero points, times their scales: one of each, or one for each row or element of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...desc.data_type import item_size
from .compiler import types
from .compiler.language import intrinsic
from .elements import STORED, emit_load, masked_load, widened
from .integer_tile import load_float, store_lanes
from .integers import load_s32
from .vec import I64, LANES, VF, Builder, Value, fload, lanes_below, splat


def make(isa: str, dtype: str, scales: str, points: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for sources of a data type.

    ``scales`` and ``points`` are "" if there are none, "one", or one for each "row" or element of a row of "lanes".
    Arguments: addresses of source, result, scales (f32) and zero points (s32); the length of rows and the number of all
    elements; the rows of an item of work; the number of rows; the rows that have the same numbers, and after how many numbers
    (or rows of them) these begin again.
    """
    size = item_size(dtype)
    convert = _make_convert(dtype, scales, points)
    scale_by_row, scale_by_lanes, one_scale = scales == "row", scales == "lanes", scales == "one"
    point_by_row, point_by_lanes, one_point = points == "row", points == "lanes", points == "one"

    def dequantise(
        begin: int, end: int, src: int, dst: int, scale: int, point: int, inner: int, count: int, together: int, rows: int,
        repeat: int, period: int,
    ) -> None:  # fmt: skip
        factor, minus = np.float32(1.0), np.float32(0.0)
        if one_scale:
            factor = fload(scale)
        if one_point:
            minus = np.float32(load_s32(point))
        row = begin * together
        within, which = row % repeat, row // repeat % period
        while row < min(rows, end * together):
            s, z = scale, point
            if scale_by_row:
                factor = fload(scale + 4 * which)
            if point_by_row:
                minus = np.float32(load_s32(point + 4 * which))
            if scale_by_lanes:
                s += 4 * which * inner
            if point_by_lanes:
                z += 4 * which * inner
            first = row * inner
            stop = min(count, first + inner)
            for at in range(first, stop, 16):
                convert(src + at * size, s, z, dst + 4 * at, stop - at, factor, minus)
                s += 64
                z += 64
            row += 1
            within += 1
            if within == repeat:
                within = 0
                which += 1
                if which == period:
                    which = 0

    return dequantise, types.void(*[types.int64] * 12)


def _make_convert(dtype: str, scales: str, points: str) -> Any:
    """Return the intrinsic that converts up to 16 elements."""

    @intrinsic
    def convert(_: Any, src: Any, scale: Any, point: Any, dst: Any, count: Any, factor: Any, minus: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            src, scale, point, dst, count, factor, minus = a

            def piece(mask: Value | None) -> None:
                if mask is None:
                    value = emit_load(b, src, dtype, VF)
                else:
                    value = widened(b, masked_load(b, src, STORED[dtype], mask), dtype, VF)
                if points:
                    less = load_float(b, point, "s32", mask) if points == "lanes" else splat(b, minus)
                    value = b.fsub(value, less)
                if scales:
                    times = load_float(b, scale, "f32", mask) if scales == "lanes" else splat(b, factor)
                    value = b.fmul(value, times)
                store_lanes(b, dst, value, mask)

            with b.if_else(b.icmp_signed("<", count, I64(LANES))) as (part, whole):
                with part:
                    piece(lanes_below(b, count))
                with whole:
                    piece(None)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5, types.float32, types.float32), emit

    return convert
