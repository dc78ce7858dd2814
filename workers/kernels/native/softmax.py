"""Normalise exponentials along an axis, or compute their logarithms.

``row`` walks along the axis with 16 of its elements a vector: contiguous rows, or blocks of 16 channels. ``strided``
has 16 independent rows a vector and steps along the axis. Both read a row three times: maximum, sum of exponentials
(added in groups, so that errors do not grow with the row), result. NaN anywhere makes the whole row NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types

from .vec import (
    vadd,
    vdiv,
    vexp,
    vkeep,
    vkeep_or,
    vload,
    vlog,
    vmax,
    vmax_lane,
    vmul,
    vset,
    vstore,
    vstore_part,
    vsub,
    vsum,
)

#: Vectors whose exponentials are added to one partial sum.
_GROUP = 64


def make(isa: str, part: str, logarithm: bool) -> tuple[Callable[..., None], Any]:
    """Return a kernel and its signature."""
    return _row(logarithm) if part == "row" else _strided(logarithm)


@njit(inline="always")
def _put(address: int, value: Any, lanes: int, full: int) -> None:
    """Store the first ``lanes`` lanes; if ``full``, zeros behind them."""
    if lanes == 16 or full:
        vstore(address, vkeep(value, lanes))
    else:
        vstore_part(address, value, lanes)


def _row(logarithm: bool) -> tuple[Callable[..., None], Any]:
    def kernel(
        begin: int, end: int, src: int, dst: int, positions: int, image: int, position: int, step: int,
        vectors: int, tail: int, full: int,
    ) -> None:  # fmt: skip
        lowest, zero = vset(np.float32(-np.inf)), vset(np.float32(0.0))
        for item in range(begin, end):
            batch = item // positions
            offset = 4 * (batch * image + (item - batch * positions) * position)
            source, target = src + offset, dst + offset
            stride = 4 * step
            last = stride * (vectors - 1)
            most, also = vkeep_or(vload(source + last), tail, lowest), lowest
            at = 0
            while at + stride < last:
                most = vmax(vload(source + at), most)
                also = vmax(vload(source + at + stride), also)
                at += 2 * stride
            if at < last:
                most = vmax(vload(source + at), most)
            shift = vset(vmax_lane(vmax(most, also)))
            total = zero
            at = 0
            while at < last:
                stop = min(last, at + _GROUP * stride)
                part = zero
                while at < stop:
                    power = vexp(vsub(vload(source + at), shift))
                    part = vadd(part, power)
                    if not logarithm:
                        vstore(target + at, power)
                    at += stride
                total = vadd(total, part)
            power = vkeep(vexp(vsub(vload(source + last), shift)), tail)
            total = vadd(total, power)
            if logarithm:
                scale = vlog(vset(vsum(total)))
                at = 0
                while at < last:
                    vstore(target + at, vsub(vsub(vload(source + at), shift), scale))
                    at += stride
                _put(target + last, vsub(vsub(vload(source + last), shift), scale), tail, full)
            else:
                scale = vset(np.float32(1.0) / vsum(total))
                at = 0
                while at < last:
                    vstore(target + at, vmul(vload(target + at), scale))
                    at += stride
                _put(target + last, vmul(power, scale), tail, full)

    return kernel, types.void(*[types.int64] * 11)


def _strided(logarithm: bool) -> tuple[Callable[..., None], Any]:
    def kernel(
        begin: int, end: int, src: int, dst: int, count: int, inner: int,
        below: int, period: int, tail: int, full: int,
    ) -> None:  # fmt: skip
        lowest, zero = vset(np.float32(-np.inf)), vset(np.float32(0.0))
        pieces = (inner + 15) // 16
        for item in range(begin, end):
            outer = item // pieces
            first = 16 * (item - outer * pieces)
            lanes = tail if (outer // below) % period == period - 1 else 16
            lanes = min(lanes, inner - first)
            offset = 4 * (outer * count * inner + first)
            stop = offset + 4 * count * inner
            stride = 4 * inner
            shift = lowest
            for at in range(offset, stop, stride):
                shift = vmax(vload(src + at), shift)
            total = zero
            at = offset
            while at < stop:
                until = min(stop, at + _GROUP * stride)
                part = zero
                while at < until:
                    power = vexp(vsub(vload(src + at), shift))
                    part = vadd(part, power)
                    if not logarithm:
                        _put(dst + at, power, lanes, full)
                    at += stride
                total = vadd(total, part)
            if logarithm:
                scale = vlog(total)
                for at in range(offset, stop, stride):
                    _put(dst + at, vsub(vsub(vload(src + at), shift), scale), lanes, full)
            else:
                for at in range(offset, stop, stride):
                    _put(dst + at, vdiv(vload(dst + at), total), lanes, full)

    return kernel, types.void(*[types.int64] * 10)
