"""Normalise exponentials along an axis, or compute their logarithms.

``row`` walks along the axis with 16 of its elements a vector: contiguous rows, or blocks of 16 channels. ``strided``
has 16 independent rows a vector and steps along the axis. Both read a row three times: maximum, sum of exponentials
(added in groups, so that errors do not grow with the row), result. ``row`` finds a row's maximum beside the exponentials of the
row before it, which take longer than their loads. ``strided`` reads short rows once. NaN anywhere makes the
whole row NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import inlined
from .elements import Elements, elements
from .exponentials import vexp_below, vlog
from .stack_room import stack_room
from .streamed_rows import place_in_room, put_row, row_room
from .vec import prefetch, vadd, vdiv, vkeep, vkeep_or, vmax, vmax_lane, vmul, vsub, vsum

#: Vectors whose exponentials are added to one partial sum.
_GROUP = 64
#: Types that hold exponentials, or of logarithms the exponents, between the passes as they are computed; of the others they are
#: computed twice. Memory for a row of logarithms is asked for by the pass that computes, too, not by a pass of stores alone.
_KEEPS = ("f32", "f64")
#: Elements of a row that are kept on the stack, not in dst.
_SHORT = 128


def make(
    isa: str, part: str, dtype: str, logarithm: bool, streams: bool = False, asks: bool = False
) -> tuple[Callable[..., None], Any]:  # fmt: skip
    """Return a kernel and its signature. Rows that it ``streams`` are written past the caches: see `streamed_rows`.

    A kernel that streams or ``asks`` prefetches the row after the next one, whose maximum it finds.
    """
    return _row(logarithm, dtype, streams, streams or asks) if part == "row" else _strided(logarithm, dtype)


def _putter(of: Elements) -> Any:
    store, store_part = of.store, of.store_part

    @inlined
    def put(address: int, value: Any, lanes: int, full: int) -> None:
        """Store the first ``lanes`` lanes; if ``full``, zeros behind them."""
        if lanes == 16 or full:
            store(address, vkeep(value, lanes))
        else:
            store_part(address, value, lanes)

    return put


def _row(logarithm: bool, dtype: str, streams: bool, asks: bool) -> tuple[Callable[..., None], Any]:
    of = elements(dtype)
    size, real, load, load_tail, store, fill = of.size, of.real, of.load, of.load_tail, of.store, of.fill
    put = _putter(of)
    keeps = dtype in _KEEPS

    @inlined
    def place(item: int, positions: int, image: int, position: int) -> int:
        """Return how many bytes behind the first element a row begins."""
        batch = item // positions
        return size * (batch * image + (item - batch * positions) * position)

    @inlined
    def part_below(address: int, lanes: int) -> Any:
        """Return the first ``lanes`` lanes, minus infinity behind them."""
        return vkeep_or(load_tail(address, lanes), lanes, fill(real(-np.inf)))

    def kernel(
        begin: int, end: int, src: int, dst: int, positions: int, image: int, position: int, step: int,
        vectors: int, tail: int, full: int,
    ) -> None:  # fmt: skip
        zero, stride = fill(real(0.0)), size * step
        last = stride * (vectors - 1)
        offset = place(begin, positions, image, position)
        most = part_below(src + offset + last, tail)
        for at in range(src + offset, src + offset + last, stride):
            most = vmax(load(at), most)
        for item in range(begin, end):
            source, target = src + offset, dst + offset
            row, offset = offset, place(min(item + 1, end - 1), positions, image, position)
            following = src + offset
            room = row_room() if streams else 0
            if streams:
                target = place_in_room(dst + row, room)
            shift = fill(vmax_lane(most))
            most = part_below(following + last, tail)
            total = zero
            at = 0
            while at < last:
                stop = min(last, at + _GROUP * stride)
                part = zero
                while at < stop:
                    if asks:
                        prefetch(following + last + at)
                    value = vsub(load(source + at), shift)
                    power = vexp_below(value)
                    most = vmax(load(following + at), most)
                    part = vadd(part, power)
                    if keeps:
                        store(target + at, value if logarithm else power)
                    at += stride
                total = vadd(total, part)
            rest = vsub(load_tail(source + last, tail), shift)
            power = vkeep(vexp_below(rest), tail)
            total = vadd(total, power)
            if logarithm:
                scale = vlog(fill(vsum(total)))
                at = 0
                while at < last:
                    if keeps:
                        store(target + at, vsub(load(target + at), scale))
                    else:
                        store(target + at, vsub(vsub(load(source + at), shift), scale))
                    at += stride
                put(target + last, vsub(rest, scale), tail, full)
            else:
                scale = fill(real(1.0) / vsum(total))
                at = 0
                while at < last:
                    if keeps:
                        store(target + at, vmul(load(target + at), scale))
                    else:
                        store(target + at, vmul(vexp_below(vsub(load(source + at), shift)), scale))
                    at += stride
                put(target + last, vmul(power, scale), tail, full)
            if streams:
                put_row(dst + row, room, last + size * tail, item == begin, item == end - 1)

    return kernel, types.void(*[types.int64] * 11)


def _strided(logarithm: bool, dtype: str) -> tuple[Callable[..., None], Any]:
    of = elements(dtype)
    size, real, load_tail, fill = of.size, of.real, of.load_tail, of.fill
    put = _putter(of)
    keeps = dtype in _KEEPS and not logarithm
    kept, lane = of.lanes_as, 16 * of.lanes_as.size
    memory = stack_room(_SHORT * lane)

    @inlined
    def short(source: int, target: int, stride: int, count: int, lanes: int, full: int) -> None:
        """Compute rows that fit on the stack: their elements may be so far apart that a cache cannot hold them together."""
        room = memory()
        shift, total = fill(real(-np.inf)), fill(real(0.0))
        for row in range(count):
            value = load_tail(source + row * stride, lanes)
            kept.store(room + row * lane, value)
            shift = vmax(value, shift)
        for at in range(room, room + count * lane, lane):
            value = vsub(kept.load(at), shift)
            power = vexp_below(value)
            total = vadd(total, power)
            kept.store(at, value if logarithm else power)
        scale = vlog(total) if logarithm else vdiv(fill(real(1.0)), total)
        for row in range(count):
            value = kept.load(room + row * lane)
            put(target + row * stride, vsub(value, scale) if logarithm else vmul(value, scale), lanes, full)

    def kernel(
        begin: int, end: int, src: int, dst: int, count: int, inner: int,
        below: int, period: int, tail: int, full: int,
    ) -> None:  # fmt: skip
        lowest, zero = fill(real(-np.inf)), fill(real(0.0))
        pieces = (inner + 15) // 16
        for item in range(begin, end):
            outer = item // pieces
            first = 16 * (item - outer * pieces)
            lanes = tail if (outer // below) % period == period - 1 else 16
            lanes = min(lanes, inner - first)
            # Loads that overlap with parts of vectors just stored wait for these, longer than another exponential of f32 takes.
            is_kept = keeps and (inner >= 16 or size == 8)
            offset = size * (outer * count * inner + first)
            stop = offset + size * count * inner
            stride = size * inner
            if count <= _SHORT:
                short(src + offset, dst + offset, stride, count, lanes, full)
                continue
            shift = lowest
            for at in range(offset, stop, stride):
                shift = vmax(load_tail(src + at, lanes), shift)
            total = zero
            at = offset
            while at < stop:
                until = min(stop, at + _GROUP * stride)
                part = zero
                while at < until:
                    power = vexp_below(vsub(load_tail(src + at, lanes), shift))
                    part = vadd(part, power)
                    if is_kept:
                        put(dst + at, power, lanes, full)
                    at += stride
                total = vadd(total, part)
            if logarithm:
                scale = vlog(total)
                for at in range(offset, stop, stride):
                    put(dst + at, vsub(vsub(load_tail(src + at, lanes), shift), scale), lanes, full)
            else:
                for at in range(offset, stop, stride):
                    if is_kept:
                        put(dst + at, vdiv(load_tail(dst + at, lanes), total), lanes, full)
                    else:
                        power = vexp_below(vsub(load_tail(src + at, lanes), shift))
                        put(dst + at, vdiv(power, total), lanes, full)

    return kernel, types.void(*[types.int64] * 10)
