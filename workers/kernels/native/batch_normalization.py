"""Normalise with given statistics: a first kernel prepares a factor for each channel, a second one applies it.

The prepared area holds means, factors and shifts, each for ``padded`` channels (a multiple of 16) with zeros behind the
last one. The mean is subtracted before the factor is applied: folded into one shift it would cancel badly if it is
large against the deviation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import functions
from .compiler import types
from .compiler.language import inlined
from .elements import elements
from .vec import vadd, vdiv, vfma, vkeep, vsqrt, vsub


def make(isa: str, part: str, dtype: str = "f32", chain: tuple[Any, ...] = ()) -> tuple[Callable[..., None], Any]:
    """Return a kernel and its signature: ``prepare``, ``rows`` (one channel a run) or ``lanes`` (16 in a vector)."""
    return _prepare(dtype) if part == "prepare" else {"rows": _rows, "lanes": _lanes}[part](dtype, chain)


def _prepare(dtype: str) -> tuple[Callable[..., None], Any]:
    of = elements(dtype)
    kept = of.lanes_as
    width, real, fill, load, store = kept.size, of.real, of.fill, of.parameters, kept.store

    def kernel(
        begin: int, end: int, mean: int, variance: int, scale: int, shift: int, prepared: int,
        channels: int, padded: int, epsilon: float,
    ) -> None:  # fmt: skip
        small = fill(real(epsilon))
        for item in range(begin, end):
            at, to = 64 * item, prepared + 16 * width * item
            count = min(16, channels - 16 * item)
            factor = vdiv(load(scale + at), vsqrt(vadd(load(variance + at), small)))
            store(to, vkeep(load(mean + at), count))
            store(to + width * padded, vkeep(factor, count))
            store(to + 2 * width * padded, vkeep(load(shift + at), count))

    return kernel, types.void(*[types.int64] * 9, types.float64)


def _rows(dtype: str, chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    finish, finish_part = functions.post_ops(chain, dtype), functions.post_ops_part(chain, dtype)
    of = elements(dtype)
    size, load, load_tail, store, store_part = of.size, of.load, of.load_tail, of.store, of.store_part
    width, load_one = of.lanes_as.size, of.lanes_as.load_one

    @inlined
    def run_of(src: int, dst: int, other: int, start: int, stop: int, mean: Any, factor: Any, shift: Any) -> None:
        for at in range(start, stop, 16 * size):
            value = vfma(vsub(load(src + at), mean), factor, shift)
            store(dst + at, finish(value, other + at))

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, prepared: int,
        padded: int, channels: int, length: int, chunk: int,
    ) -> None:  # fmt: skip
        pieces = (length + chunk - 1) // chunk
        for item in range(begin, end):
            run = item // pieces
            first = (item - run * pieces) * chunk
            count = min(chunk, length - first)
            channel = width * (run % channels)
            mean = load_one(prepared + channel)
            factor = load_one(prepared + width * padded + channel)
            shift = load_one(prepared + 2 * width * padded + channel)
            offset = size * (run * length + first)
            whole = offset + size * (count & -16)
            if count >= 16 and count & 15:
                # Stores of part of a vector are slow. The last 16 elements are computed first: dst may be src.
                at = offset + size * (count - 16)
                last = finish(vfma(vsub(load(src + at), mean), factor, shift), other + at)
                run_of(src, dst, other, offset, whole, mean, factor, shift)
                store(dst + at, last)
                continue
            run_of(src, dst, other, offset, whole, mean, factor, shift)
            if count & 15:
                at = offset + size * (count & -16)
                value = vfma(vsub(load_tail(src + at, count & 15), mean), factor, shift)
                store_part(dst + at, finish_part(value, other + at, count & 15), count & 15)

    return kernel, types.void(*[types.int64] * 10)


def _lanes(dtype: str, chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    finish, finish_part = functions.post_ops(chain, dtype), functions.post_ops_part(chain, dtype)
    of = elements(dtype)
    size, load, load_tail, store, store_part = of.size, of.load, of.load_tail, of.store, of.store_part
    width, load_prepared = of.lanes_as.size, of.lanes_as.load

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
            place = prepared + 16 * width * number
            mean = load_prepared(place)
            factor = load_prepared(place + width * padded)
            shift = load_prepared(place + 2 * width * padded)
            offset = size * (batch * image + number * block)
            for index in range(first, min(positions, first + chunk)):
                at = offset + size * position * index
                if lanes == 16 or full:
                    value = finish(vfma(vsub(load(src + at), mean), factor, shift), other + at)
                    store(dst + at, vkeep(value, lanes))
                else:
                    value = vfma(vsub(load_tail(src + at, lanes), mean), factor, shift)
                    store_part(dst + at, finish_part(value, other + at, lanes), lanes)

    return kernel, types.void(*[types.int64] * 15)
