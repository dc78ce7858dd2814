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

from . import functions
from .compiler import types
from .compiler.language import inlined
from .elements import elements
from .streamed_rows import place_in_room, put_row, row_room
from .vec import (
    fload,
    fstore,
    prefetch,
    vadd,
    vfma,
    vkeep,
    vmul,
    vsub,
    vsum,
)

#: Elements that are added to one partial sum, so that errors do not grow with the row.
_GROUP = 16 * 64


def make(
    isa: str, part: str, dtype: str, chain: tuple[Any, ...], centered: bool, streams: bool = False,
    asks: bool = False,
) -> tuple[Callable[..., None], Any]:  # fmt: skip
    """Return a kernel and its signature: ``layer`` scales each element of a row, ``group`` each channel.

    Statistics, scales and shifts are f32. If it ``streams``, the rows of a ``layer`` are written past the caches. A ``layer``
    that streams or ``asks`` prefetches the next row.
    """
    statistics = _statistics(centered, dtype)
    return (
        _layer(chain, dtype, statistics, streams, streams or asks)
        if part == "layer"
        else _group(chain, dtype, statistics)
    )


def _mean(dtype: str) -> Any:
    of = elements(dtype)
    size, real, load, load_tail, fill = of.size, of.real, of.load, of.load_tail, of.fill
    step, group = 16 * of.size, of.size * _GROUP

    @inlined
    def mean(line: int, length: int) -> Any:
        """Return the mean of a row, rounded to the type of lanes."""
        whole = size * (length & -16)
        zero = fill(real(0.0))
        total = zero
        at = 0
        while at < whole:
            stop = min(whole, at + group)
            first, second, third, fourth = zero, zero, zero, zero
            while at + 4 * step <= stop:
                first = vadd(first, load(line + at))
                second = vadd(second, load(line + at + step))
                third = vadd(third, load(line + at + 2 * step))
                fourth = vadd(fourth, load(line + at + 3 * step))
                at += 4 * step
            while at < stop:
                first = vadd(first, load(line + at))
                at += step
            total = vadd(total, vadd(vadd(first, second), vadd(third, fourth)))
        if length & 15:
            total = vadd(total, vkeep(load_tail(line + whole, length & 15), length & 15))
        return real(np.float64(vsum(total)) / length)

    return mean


def _moments(dtype: str) -> Any:
    of = elements(dtype)
    size, real, load, load_tail, fill = of.size, of.real, of.load, of.load_tail, of.fill
    step, group = 16 * of.size, of.size * _GROUP

    @inlined
    def moments(line: int, length: int, mean: float) -> tuple[float, float]:
        """Return by how much a rounded mean is too small, and the mean square of distances to it, in float64."""
        whole = size * (length & -16)
        zero, middle = fill(real(0.0)), fill(mean)
        total, squares = zero, zero
        at = 0
        while at < whole:
            stop = min(whole, at + group)
            first, second, third, fourth = zero, zero, zero, zero
            while at + 2 * step <= stop:
                x, y = vsub(load(line + at), middle), vsub(load(line + at + step), middle)
                first, second = vadd(first, x), vadd(second, y)
                third, fourth = vfma(x, x, third), vfma(y, y, fourth)
                at += 2 * step
            while at < stop:
                x = vsub(load(line + at), middle)
                first, third = vadd(first, x), vfma(x, x, third)
                at += step
            total, squares = vadd(total, vadd(first, second)), vadd(squares, vadd(third, fourth))
        if length & 15:
            x = vkeep(vsub(load_tail(line + whole, length & 15), middle), length & 15)
            total, squares = vadd(total, x), vfma(x, x, squares)
        return np.float64(vsum(total)) / length, np.float64(vsum(squares)) / length

    return moments


def _statistics(centered: bool, dtype: str) -> Any:
    """Return a function that finds a row's mean, what to add to it, and its variance; the mean is 0 if not ``centered``."""
    real, mean_of, moments_of = elements(dtype).real, _mean(dtype), _moments(dtype)

    @inlined
    def statistics(line: int, length: int, mean: int, variance: int, given: int) -> tuple[Any, Any, Any]:
        """Read the statistics if they are ``given``, else write them if they are wanted."""
        middle, rest = real(0.0), 0.0
        if given:
            if centered:
                middle = real(fload(mean))
            spread = np.float64(fload(variance))
        else:
            if centered:
                middle = mean_of(line, length)
            rest, spread = moments_of(line, length, middle)
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


def _layer(
    chain: tuple[Any, ...], dtype: str, statistics: Any, streams: bool, asks: bool
) -> tuple[Callable[..., None], Any]:  # fmt: skip
    finish, finish_part = functions.post_ops(chain, dtype), functions.post_ops_part(chain, dtype)
    of = elements(dtype)
    size, real, load, load_tail, fill = of.size, of.real, of.load, of.load_tail, of.fill
    store, store_part, parameters, parameters_tail = of.store, of.store_part, of.parameters, of.parameters_tail

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, mean: int, variance: int, scale: int, shift: int,
        scale_mask: int, shift_mask: int, given: int, length: int, epsilon: float,
    ) -> None:  # fmt: skip
        mean_step, step = 4 if mean != 0 else 0, 4 if variance != 0 else 0
        whole, left = length & -16, length & 15
        for item in range(begin, end):
            offset = size * item * length
            middle, rest, spread = statistics(
                src + offset, length, mean + mean_step * item, variance + step * item, given
            )
            center, correction = fill(middle), fill(real(rest))
            factor = fill(real(1.0 / np.sqrt(spread + epsilon)))
            to = dst + offset
            room = row_room() if streams else 0
            if streams:
                to = place_in_room(dst + offset, room)
            for index in range(0, whole, 16):
                at = offset + size * index
                if asks:
                    prefetch(src + at + size * length)
                value = vmul(vsub(vsub(load(src + at), center), correction), factor)
                place = 4 * index
                value = vfma(value, parameters(scale + (place & scale_mask)), parameters(shift + (place & shift_mask)))
                store(to + size * index, finish(value, other + at))
            if left:
                at = offset + size * whole
                value = vmul(vsub(vsub(load_tail(src + at, left), center), correction), factor)
                place = 4 * whole
                scales = parameters_tail(scale + (place & scale_mask), left)
                value = vfma(value, scales, parameters_tail(shift + (place & shift_mask), left))
                store_part(to + size * whole, finish_part(value, other + at, left), left)
            if streams:
                put_row(dst + offset, room, size * length, item == begin, item == end - 1)

    return kernel, types.void(*[types.int64] * 13, types.float64)


def _group(chain: tuple[Any, ...], dtype: str, statistics: Any) -> tuple[Callable[..., None], Any]:
    finish, finish_part = functions.post_ops(chain, dtype), functions.post_ops_part(chain, dtype)
    of = elements(dtype)
    size, real, load, load_tail, fill = of.size, of.real, of.load, of.load_tail, of.fill
    store, store_part = of.store, of.store_part

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, mean: int, variance: int, scale: int, shift: int,
        scale_mask: int, shift_mask: int, given: int, groups: int, channels: int, area: int, epsilon: float,
    ) -> None:  # fmt: skip
        mean_step, step = 4 if mean != 0 else 0, 4 if variance != 0 else 0
        whole, left = size * (area & -16), area & 15
        length = channels * area
        for item in range(begin, end):
            offset = size * item * length
            middle, rest, spread = statistics(
                src + offset, length, mean + mean_step * item, variance + step * item, given
            )
            center, correction = fill(middle), fill(real(rest))
            deviation = np.sqrt(spread + epsilon)
            first = 4 * channels * (item % groups)
            for channel in range(first, first + 4 * channels, 4):
                factor = fill(real(np.float64(fload(scale + (channel & scale_mask))) / deviation))
                added = fill(real(fload(shift + (channel & shift_mask))))
                for at in range(offset, offset + whole, 16 * size):
                    value = vfma(vsub(vsub(load(src + at), center), correction), factor, added)
                    store(dst + at, finish(value, other + at))
                if left:
                    at = offset + whole
                    value = vfma(vsub(vsub(load_tail(src + at, left), center), correction), factor, added)
                    store_part(dst + at, finish_part(value, other + at, left), left)
                offset += size * area

    return kernel, types.void(*[types.int64] * 15, types.float64)
