"""Reduce a tensor along every dimension that the destination has only once; an item is an element of the destination."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from ...codes import REDUCTION
from ..compiler import types
from .data_types import is_less
from .epilogue import fetch, finish, put_whole, whole_element, wraps_as
from .scalars import read_s64
from .tensor import dim, dtype, rank

_MAX: Final = REDUCTION["max"]
_MIN: Final = REDUCTION["min"]
_SUM: Final = REDUCTION["sum"]
_MUL: Final = REDUCTION["mul"]
_MEAN: Final = REDUCTION["mean"]
_LP_MAX: Final = REDUCTION["norm_lp_max"]
_LP_SUM: Final = REDUCTION["norm_lp_sum"]
_POWER_MAX: Final = REDUCTION["norm_lp_power_p_max"]


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, chain, algorithm, elements of src for one of dst, p, eps, operands)."""

    def reduction(
        begin: int, end: int, src: int, dst: int, chain: int, algorithm: int, count: int, p: float, eps: float,
        operands: Any,
    ) -> None:  # fmt: skip
        whole = algorithm <= _MUL and count > 0 and read_s64(chain) == 0 and wraps_as(src, dst)
        for item in range(begin, end):
            if whole:
                found = whole_element(operands, src, _source(src, dst, item, 0))
                for number in range(1, count):
                    x = whole_element(operands, src, _source(src, dst, item, number))
                    found = _whole_accumulated(algorithm, found, x, dtype(src))
                put_whole(operands, dst, item, found)
                continue
            value = _neutral(algorithm)
            for number in range(count):
                value = _accumulated(algorithm, value, fetch(operands, src, _source(src, dst, item, number)), p)
            finish(operands, dst, chain, item, _reduced(algorithm, value, count, p, eps))

    return reduction, types.void(*[types.int64] * 7, types.float64, types.float64, types.voidptr)


def _source(src: int, dst: int, item: int, number: int) -> int:
    """Return the row-major number in src of the ``number``-th element that is reduced to element ``item`` of dst."""
    found, step = 0, 1
    for axis in range(rank(src) - 1, -1, -1):
        size, kept = dim(src, axis), dim(dst, axis)
        if kept == size:
            outer = item // size
            found += (item - outer * size) * step
            item = outer
        else:
            outer = number // size
            found += (number - outer * size) * step
            number = outer
        step *= size
    return found


def _neutral(algorithm: int) -> float:
    if algorithm == _MAX:
        return -math.inf
    if algorithm == _MIN:
        return math.inf
    return 1.0 if algorithm == _MUL else 0.0


def _accumulated(algorithm: int, value: float, x: float, p: float) -> float:
    if algorithm == _MAX:
        return value if value > x or value != value else x
    if algorithm == _MIN:
        return value if value < x or value != value else x
    if algorithm == _MUL:
        return value * x
    if algorithm in (_SUM, _MEAN):
        return value + x
    return value + math.pow(math.fabs(x), p)


def _whole_accumulated(algorithm: int, value: int, x: int, code: int) -> int:
    if algorithm == _SUM:
        return value + x
    if algorithm == _MUL:
        return value * x
    less = is_less(x, value, code)
    return x if less == (algorithm == _MIN) else value


def _reduced(algorithm: int, value: float, count: int, p: float, eps: float) -> float:
    if algorithm <= _MUL:
        return value
    if algorithm == _MEAN:
        return value / count
    if algorithm in (_LP_MAX, _POWER_MAX):
        value = eps if value < eps else value
    else:
        value = value + eps
    return math.pow(value, 1.0 / p) if algorithm in (_LP_MAX, _LP_SUM) else value
