"""The gradient of softmax or of its logarithm from the result: e - exp(y) sum(e), or y (e - sum(e y)) without logarithm.

``row`` walks along the axis with 16 of its elements a vector: contiguous rows, or blocks of 16 channels. ``strided``
has 16 independent rows a vector and steps along the axis. A row is read twice, the second time mostly from a cache. Sums
are added in groups, so that errors do not grow with the row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import inlined
from .exponentials import vexp_below
from .first_lanes import vstore_part
from .vec import vadd, vfma, vkeep, vload, vmul, vneg, vset, vstore, vsub, vsum

#: Vectors that are added to one partial sum.
_GROUP = 64


def make(isa: str, part: str, logarithm: bool) -> tuple[Callable[..., None], Any]:
    """Return a kernel and its signature."""
    return _row(logarithm) if part == "row" else _strided(logarithm)


@inlined
def _put(address: int, value: Any, lanes: int, full: int) -> None:
    """Store the first ``lanes`` lanes; if ``full``, zeros behind them."""
    if lanes == 16 or full:
        vstore(address, vkeep(value, lanes))
    else:
        vstore_part(address, value, lanes)


def _parts(logarithm: bool) -> tuple[Any, Any]:
    """Return what adds a vector to a row's sum, and what makes a vector of the result."""

    @inlined
    def add(result: int, error: int, total: Any) -> Any:
        if logarithm:
            return vadd(total, vload(error))
        return vfma(vload(error), vload(result), total)

    @inlined
    def gradient(result: int, error: int, total: Any) -> Any:
        if logarithm:
            return vfma(vneg(vexp_below(vload(result))), total, vload(error))
        return vmul(vload(result), vsub(vload(error), total))

    return add, gradient


def _row(logarithm: bool) -> tuple[Callable[..., None], Any]:
    add, gradient = _parts(logarithm)

    def kernel(
        begin: int, end: int, dst: int, diff_dst: int, diff_src: int, positions: int, image: int, position: int, step: int,
        vectors: int, tail: int, full: int,
    ) -> None:  # fmt: skip
        zero = vset(np.float32(0.0))
        stride = 4 * step
        last = stride * (vectors - 1)
        for item in range(begin, end):
            batch = item // positions
            offset = 4 * (batch * image + (item - batch * positions) * position)
            result, error, target = dst + offset, diff_dst + offset, diff_src + offset
            total = vkeep(add(result + last, error + last, zero), tail)
            at = 0
            while at < last:
                stop = min(last, at + _GROUP * stride)
                even, odd = zero, zero
                while at + stride < stop:
                    even = add(result + at, error + at, even)
                    odd = add(result + at + stride, error + at + stride, odd)
                    at += 2 * stride
                if at < stop:
                    even = add(result + at, error + at, even)
                    at += stride
                total = vadd(total, vadd(even, odd))
            whole = vset(vsum(total))
            for at in range(0, last, stride):
                vstore(target + at, gradient(result + at, error + at, whole))
            _put(target + last, gradient(result + last, error + last, whole), tail, full)

    return kernel, types.void(*[types.int64] * 12)


def _strided(logarithm: bool) -> tuple[Callable[..., None], Any]:
    add, gradient = _parts(logarithm)

    def kernel(
        begin: int, end: int, dst: int, diff_dst: int, diff_src: int, count: int, inner: int,
        below: int, period: int, tail: int, full: int,
    ) -> None:  # fmt: skip
        zero = vset(np.float32(0.0))
        pieces = (inner + 15) // 16
        stride = 4 * inner
        for item in range(begin, end):
            outer = item // pieces
            first = 16 * (item - outer * pieces)
            lanes = tail if (outer // below) % period == period - 1 else 16
            lanes = min(lanes, inner - first)
            offset = 4 * (outer * count * inner + first)
            stop = offset + count * stride
            total = zero
            at = offset
            while at < stop:
                until = min(stop, at + _GROUP * stride)
                part = zero
                while at < until:
                    part = add(dst + at, diff_dst + at, part)
                    at += stride
                total = vadd(total, part)
            for at in range(offset, stop, stride):
                _put(diff_src + at, gradient(dst + at, diff_dst + at, total), lanes, full)

    return kernel, types.void(*[types.int64] * 11)
