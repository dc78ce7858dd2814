"""Normalise with given statistics: a first kernel prepares a factor for each channel, a second one applies it.

The prepared area holds means, factors and shifts, each for ``padded`` channels (a multiple of 16) with zeros behind the
last one. The mean is subtracted before the factor is applied: folded into one shift it would cancel badly if it is
large against the deviation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from . import functions
from .vec import (
    vadd,
    vbroadcast,
    vdiv,
    vfma,
    vkeep,
    vload,
    vset,
    vsqrt,
    vstore,
    vstore_part,
    vsub,
)


def make(isa: str, part: str, chain: tuple[Any, ...] = ()) -> tuple[Callable[..., None], Any]:
    """Return a kernel and its signature: ``prepare``, ``rows`` (one channel a run) or ``lanes`` (16 in a vector)."""
    return {"prepare": _prepare, "rows": _rows, "lanes": _lanes}[part](chain)


def _prepare(chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    def kernel(
        begin: int, end: int, mean: int, variance: int, scale: int, shift: int, prepared: int,
        channels: int, padded: int, epsilon: float,
    ) -> None:  # fmt: skip
        small = vset(np.float32(epsilon))
        for item in range(begin, end):
            at = 64 * item
            count = min(16, channels - 16 * item)
            factor = vdiv(vload(scale + at), vsqrt(vadd(vload(variance + at), small)))
            vstore(prepared + at, vkeep(vload(mean + at), count))
            vstore(prepared + 4 * padded + at, vkeep(factor, count))
            vstore(prepared + 8 * padded + at, vkeep(vload(shift + at), count))

    return kernel, types.void(*[types.int64] * 9, types.float64)


def _rows(chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    finish = functions.post_ops(chain)

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, prepared: int,
        padded: int, channels: int, length: int, chunk: int,
    ) -> None:  # fmt: skip
        pieces = (length + chunk - 1) // chunk
        for item in range(begin, end):
            run = item // pieces
            first = (item - run * pieces) * chunk
            count = min(chunk, length - first)
            channel = 4 * (run % channels)
            mean = vbroadcast(prepared + channel)
            factor = vbroadcast(prepared + 4 * padded + channel)
            shift = vbroadcast(prepared + 8 * padded + channel)
            offset = 4 * (run * length + first)
            for at in range(offset, offset + 4 * (count & -16), 64):
                value = vfma(vsub(vload(src + at), mean), factor, shift)
                vstore(dst + at, finish(value, other + at))
            if count & 15:
                at = offset + 4 * (count & -16)
                value = vfma(vsub(vload(src + at), mean), factor, shift)
                vstore_part(dst + at, finish(value, other + at), count & 15)

    return kernel, types.void(*[types.int64] * 10)


def _lanes(chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    finish = functions.post_ops(chain)

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, prepared: int, padded: int,
        blocks: int, tail: int, full: int, image: int, block: int, positions: int, position: int, chunk: int,
    ) -> None:  # fmt: skip
        pieces = (positions + chunk - 1) // chunk
        for item in range(begin, end):
            run = item // pieces
            first = (item - run * pieces) * chunk
            batch = run // blocks
            number = run - batch * blocks
            lanes = tail if number == blocks - 1 else 16
            mean = vload(prepared + 64 * number)
            factor = vload(prepared + 4 * padded + 64 * number)
            shift = vload(prepared + 8 * padded + 64 * number)
            offset = 4 * (batch * image + number * block)
            for index in range(first, min(positions, first + chunk)):
                at = offset + 4 * position * index
                value = finish(vfma(vsub(vload(src + at), mean), factor, shift), other + at)
                if lanes == 16 or full:
                    vstore(dst + at, vkeep(value, lanes))
                else:
                    vstore_part(dst + at, value, lanes)

    return kernel, types.void(*[types.int64] * 15)
