"""Normalise rows that follow one another in memory: a layer's, or the channels of a group of an image.

An item is a row, which has one mean and variance. These are found in two passes: the second one adds up the distances
to the rounded mean too, which correct it. A row is read a third time for the result, mostly from a cache. If a kernel is not
``centered``, the mean is 0 and a row is read twice. Absent scales and shifts are a vector of ones or zeros that a mask of 0
never steps along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types

from . import functions
from .vec import (
    fload,
    fstore,
    vadd,
    vfma,
    vkeep,
    vload,
    vmul,
    vset,
    vstore,
    vstore_part,
    vsub,
    vsum,
)

#: Bytes whose elements are added to one partial sum, so that errors do not grow with the row.
_GROUP = 64 * 64


def make(isa: str, part: str, chain: tuple[Any, ...], centered: bool) -> tuple[Callable[..., None], Any]:
    """Return a kernel and its signature: ``layer`` scales each element of a row, ``group`` each channel."""
    return _layer(chain, _statistics(centered)) if part == "layer" else _group(chain, _statistics(centered))


@njit(inline="always")
def _mean(line: int, length: int) -> Any:
    """Return the mean of a row, rounded to float32."""
    whole = 4 * (length & -16)
    zero = vset(np.float32(0.0))
    total = zero
    at = 0
    while at < whole:
        stop = min(whole, at + _GROUP)
        first, second, third, fourth = zero, zero, zero, zero
        while at + 256 <= stop:
            first = vadd(first, vload(line + at))
            second = vadd(second, vload(line + at + 64))
            third = vadd(third, vload(line + at + 128))
            fourth = vadd(fourth, vload(line + at + 192))
            at += 256
        while at < stop:
            first = vadd(first, vload(line + at))
            at += 64
        total = vadd(total, vadd(vadd(first, second), vadd(third, fourth)))
    total = vadd(total, vkeep(vload(line + whole), length & 15))
    return np.float32(np.float64(vsum(total)) / length)


@njit(inline="always")
def _moments(line: int, length: int, mean: float) -> tuple[float, float]:
    """Return by how much a rounded mean is too small, and the mean square of distances to it, in float64."""
    whole = 4 * (length & -16)
    zero, middle = vset(np.float32(0.0)), vset(mean)
    total, squares = zero, zero
    at = 0
    while at < whole:
        stop = min(whole, at + _GROUP)
        first, second, third, fourth = zero, zero, zero, zero
        while at + 128 <= stop:
            x, y = vsub(vload(line + at), middle), vsub(vload(line + at + 64), middle)
            first, second = vadd(first, x), vadd(second, y)
            third, fourth = vfma(x, x, third), vfma(y, y, fourth)
            at += 128
        while at < stop:
            x = vsub(vload(line + at), middle)
            first, third = vadd(first, x), vfma(x, x, third)
            at += 64
        total, squares = vadd(total, vadd(first, second)), vadd(squares, vadd(third, fourth))
    x = vkeep(vsub(vload(line + whole), middle), length & 15)
    total, squares = vadd(total, x), vfma(x, x, squares)
    return np.float64(vsum(total)) / length, np.float64(vsum(squares)) / length


def _statistics(centered: bool) -> Any:
    """Return a function that finds a row's mean, what to add to it, and its variance; the mean is 0 if not ``centered``."""

    @njit(inline="always")
    def statistics(line: int, length: int, mean: int, variance: int, given: int) -> tuple[Any, Any, Any]:
        """Read the statistics if they are ``given``, else write them if they are wanted."""
        middle, rest = np.float32(0.0), 0.0
        if given:
            if centered:
                middle = fload(mean)
            spread = np.float64(fload(variance))
        else:
            if centered:
                middle = _mean(line, length)
            rest, spread = _moments(line, length, middle)
            if centered:
                spread -= rest * rest
                if spread < 0.0:  # NaN stays
                    spread = np.float64(0.0)
            else:
                rest = 0.0
            if mean != 0:
                fstore(mean, np.float32(middle + rest))
            if variance != 0:
                fstore(variance, np.float32(spread))
        return middle, rest, spread

    return statistics


def _layer(chain: tuple[Any, ...], statistics: Any) -> tuple[Callable[..., None], Any]:
    finish = functions.post_ops(chain)

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, mean: int, variance: int, scale: int, shift: int,
        scale_mask: int, shift_mask: int, given: int, length: int, epsilon: float,
    ) -> None:  # fmt: skip
        mean_step, step = 4 if mean != 0 else 0, 4 if variance != 0 else 0
        whole = 4 * (length & -16)
        for item in range(begin, end):
            offset = 4 * item * length
            middle, rest, spread = statistics(
                src + offset, length, mean + mean_step * item, variance + step * item, given
            )
            center, correction = vset(middle), vset(np.float32(rest))
            factor = vset(np.float32(1.0 / np.sqrt(spread + epsilon)))
            for at in range(0, whole, 64):
                value = vmul(vsub(vsub(vload(src + offset + at), center), correction), factor)
                value = vfma(value, vload(scale + (at & scale_mask)), vload(shift + (at & shift_mask)))
                vstore(dst + offset + at, finish(value, other + offset + at))
            if length & 15:
                value = vmul(vsub(vsub(vload(src + offset + whole), center), correction), factor)
                value = vfma(value, vload(scale + (whole & scale_mask)), vload(shift + (whole & shift_mask)))
                vstore_part(dst + offset + whole, finish(value, other + offset + whole), length & 15)

    return kernel, types.void(*[types.int64] * 13, types.float64)


def _group(chain: tuple[Any, ...], statistics: Any) -> tuple[Callable[..., None], Any]:
    finish = functions.post_ops(chain)

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, mean: int, variance: int, scale: int, shift: int,
        scale_mask: int, shift_mask: int, given: int, groups: int, channels: int, area: int, epsilon: float,
    ) -> None:  # fmt: skip
        mean_step, step = 4 if mean != 0 else 0, 4 if variance != 0 else 0
        whole = 4 * (area & -16)
        length = channels * area
        for item in range(begin, end):
            offset = 4 * item * length
            middle, rest, spread = statistics(
                src + offset, length, mean + mean_step * item, variance + step * item, given
            )
            center, correction = vset(middle), vset(np.float32(rest))
            deviation = np.sqrt(spread + epsilon)
            first = 4 * channels * (item % groups)
            for channel in range(first, first + 4 * channels, 4):
                factor = vset(np.float32(np.float64(fload(scale + (channel & scale_mask))) / deviation))
                added = vset(fload(shift + (channel & shift_mask)))
                for at in range(offset, offset + whole, 64):
                    value = vfma(vsub(vsub(vload(src + at), center), correction), factor, added)
                    vstore(dst + at, finish(value, other + at))
                if area & 15:
                    at = offset + whole
                    value = vfma(vsub(vsub(vload(src + at), center), correction), factor, added)
                    vstore_part(dst + at, finish(value, other + at), area & 15)
                offset += 4 * area

    return kernel, types.void(*[types.int64] * 15, types.float64)
