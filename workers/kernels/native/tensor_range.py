"""The least and the greatest number of parts of a tensor of f32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import intrinsic
from .vec import Builder, Value, VectorType, constant, fload, fold, fstore, maximum, minimum, vload, vset


@intrinsic
def _least(_: Any, value: VectorType, other: VectorType) -> Any:
    """Return the smaller of two, ``other`` if ``value`` is NaN."""
    return value(value, value), lambda context, b, sig, a: minimum(b, a[0], a[1])


@intrinsic
def _most(_: Any, value: VectorType, other: VectorType) -> Any:
    """Return the larger of two, ``other`` if ``value`` is NaN."""
    return value(value, value), lambda context, b, sig, a: maximum(b, a[0], a[1])


@intrinsic
def _marked(_: Any, marks: VectorType, x: VectorType, y: VectorType) -> Any:
    """Return marks, NaN in each lane where x or y is NaN."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return b.select(b.fcmp_unordered("uno", a[1], a[2]), constant(math.nan), a[0])

    return marks(marks, marks, marks), emit


@intrinsic
def _least_lane(_: Any, value: VectorType) -> Any:
    """Return the smallest lane; there is no NaN."""
    return value.scalar(value), lambda context, b, sig, a: fold(b, a[0], minimum)


@intrinsic
def _most_lane(_: Any, value: VectorType) -> Any:
    """Return the largest lane; there is no NaN."""
    return value.scalar(value), lambda context, b, sig, a: fold(b, a[0], maximum)


@intrinsic
def _has_mark(_: Any, marks: VectorType) -> Any:
    """Return NaN if a lane is NaN, else 0."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return fold(b, a[0], lambda b, x, y: b.fadd(x, y))

    return marks.scalar(marks), emit


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of the tensor and of the ranges (two f32 each, both NaN if there is NaN); the number of elements, and
    of those of a part. One item of work is a part.
    """

    def ranges(begin: int, end: int, src: int, dst: int, count: int, chunk: int) -> None:
        for item in range(begin, end):
            at = src + item * chunk * 4
            stop = src + min(count, (item + 1) * chunk) * 4
            low, high = vset(np.float32(math.inf)), vset(np.float32(-math.inf))
            low_other, high_other = low, high
            marks = vset(np.float32(0.0))
            while at + 128 <= stop:
                x, y = vload(at), vload(at + 64)
                low, high = _least(x, low), _most(x, high)
                low_other, high_other = _least(y, low_other), _most(y, high_other)
                marks = _marked(marks, x, y)
                at += 128
            least, most = _least_lane(_least(low, low_other)), _most_lane(_most(high, high_other))
            mark = _has_mark(marks)
            while at < stop:
                value = fload(at)
                if value < least:
                    least = value
                if value > most:
                    most = value
                if value != value:
                    mark = value
                at += 4
            fstore(dst + item * 8, least + mark)
            fstore(dst + item * 8 + 4, most + mark)

    return ranges, types.void(*[types.int64] * 6)
