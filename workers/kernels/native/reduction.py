"""Reduce float32 tensors whose dimensions are kept, reduced, kept, reduced and kept, in this order (any may be 1).

``row`` reduces contiguous runs, 16 of a run's elements a vector; ``strided`` has strips of 64 independent columns and
steps from row to row, with the sums of a group in scratch memory if there are several strips. The reduced elements are
cut into ``parts``, each with a result of its own, which another launch reduces again. Sums are added up in groups of
about the square root of their number, so that errors grow no faster. NaN anywhere makes the result NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numba import njit, types

from .vec import (
    Builder,
    Value,
    call,
    fma,
    fold,
    intrinsic,
    maximum,
    vector,
    vkeep_or,
    vload,
    vload_part,
    vset,
    vstore,
    vstore_part,
)

#: Columns that an item of ``strided`` covers.
_STRIP: Final = 64
#: Strips that are reduced together; their sums are 4 KiB.
_BESIDE: Final = 16


def make(isa: str, part: str, step: str, result: str, root: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel and its signature.

    ``step`` is the term of an element: ``sum``, ``max``, ``min``, ``abs`` or ``square``. ``result`` is the last step:
    nothing (empty), ``mean``, or the ``max`` or ``sum`` with eps, of which ``root`` takes the square root.
    """
    steps = _steps(step)
    finish = _finish(result, root)
    return _row(steps, finish) if part == "row" else _strided(steps, finish)


def _row(steps: tuple[Any, ...], finish: Any) -> tuple[Callable[..., None], Any]:
    add, merge, across, neutral = steps

    def kernel(
        begin: int, end: int, src: int, dst: int, outputs: int, kept: int, outer: int, inner: int, columns: int,
        parts: int, group: int, each: int, unused: int, count: float, eps: float,
    ) -> None:  # fmt: skip
        nothing, size, small = vset(np.float32(neutral)), vset(np.float32(count)), vset(np.float32(eps))
        for item in range(begin, end):
            part = item // outputs
            output = item - part * outputs
            first = outer * inner * part // parts
            last = outer * inner * (part + 1) // parts
            before = output // kept
            base = src + 4 * inner * (before * outer * kept + output - before * kept)
            total = nothing
            while first < last:
                run = first // inner
                start = first - run * inner
                length = min(inner - start, last - first)
                first += length
                at = base + 4 * (run * kept * inner + start)
                stop = at + 4 * length
                while stop - at >= 64:
                    until = min(stop, at + 64 * group)
                    p0, p1, p2, p3 = nothing, nothing, nothing, nothing
                    while until - at >= 256:
                        p0 = add(p0, vload(at))
                        p1 = add(p1, vload(at + 64))
                        p2 = add(p2, vload(at + 128))
                        p3 = add(p3, vload(at + 192))
                        at += 256
                    while until - at >= 64:
                        p0 = add(p0, vload(at))
                        at += 64
                    total = merge(total, merge(merge(p0, p1), merge(p2, p3)))
                if at < stop:
                    left = (stop - at) >> 2
                    total = add(total, vkeep_or(vload_part(at, left), left, nothing))
            vstore_part(dst + 4 * item, finish(vset(across(total)), size, small), 1)

    return kernel, types.void(*[types.int64] * 13, types.float64, types.float64)


def _strided(steps: tuple[Any, ...], finish: Any) -> tuple[Callable[..., None], Any]:
    add, merge, _, neutral = steps

    @njit(inline="always")
    def load(at: int, lanes: int) -> Any:
        return vload(at) if lanes == 16 else vload_part(at, lanes)

    @njit
    def reduce_rows(at: int, stop: int, row: int, sums: int, wide: int, left: int, nothing: Any) -> None:
        """Reduce rows to ``sums``, up to ``wide`` bytes of each and of ``left`` to its end, in the order of memory."""
        is_first = True
        while is_first or at < stop:
            offset = 0
            together = 4 if stop - at > 3 * row else 1 if at < stop else 0
            while offset < wide and offset < left:
                lanes = min(16, (left - offset) >> 2)
                total = nothing if is_first else vload(sums + offset)
                if together > 0:
                    total = add(total, load(at + offset, lanes))
                if together > 1:
                    total = add(total, load(at + row + offset, lanes))
                    total = add(total, load(at + 2 * row + offset, lanes))
                    total = add(total, load(at + 3 * row + offset, lanes))
                vstore(sums + offset, total)
                offset += 64
            at += row * together
            is_first = False

    def kernel(
        begin: int, end: int, src: int, dst: int, outputs: int, kept: int, outer: int, inner: int, columns: int,
        parts: int, group: int, each: int, sums_of_strips: int, count: float, eps: float,
    ) -> None:  # fmt: skip
        nothing, size, small = vset(np.float32(neutral)), vset(np.float32(count)), vset(np.float32(eps))
        strips = (columns + _STRIP - 1) // _STRIP
        n0 = min(16, columns)
        n1 = max(0, min(16, columns - 16))
        n2 = max(0, min(16, columns - 32))
        n3 = max(0, min(16, columns - 48))
        item = begin * each
        while item < end * each:
            plane = item // strips
            strip = item - plane * strips
            # Several strips of a plane together: processors fetch ahead where memory is read in order.
            beside = min(strips - strip, end * each - item, _BESIDE)
            item += beside
            part = plane // outputs
            output = plane - part * outputs
            first = outer * inner * part // parts
            last = outer * inner * (part + 1) // parts
            before = output // kept
            base = src + 4 * inner * columns * (before * outer * kept + output - before * kept)
            wide = 4 * _STRIP * beside
            sums = sums_of_strips + 4 * _STRIP * (plane * strips + strip)
            t0, t1, t2, t3 = nothing, nothing, nothing, nothing
            is_first = True
            while is_first or first < last:
                run = first // max(1, inner)
                start = first - run * inner
                length = min(inner - start, last - first, group)
                first += length
                at = base + 4 * (columns * (run * kept * inner + start) + _STRIP * strip)
                stop = at + 4 * columns * length
                to = dst + 4 * (plane * columns + _STRIP * strip)
                end_of_row = to + 4 * (columns - _STRIP * strip)
                if strips > 1:
                    reduce_rows(at, stop, 4 * columns, sums, wide, 4 * (columns - _STRIP * strip), nothing)
                    # The destination holds the sums of groups.
                    offset = 0
                    while offset < wide and to + offset < end_of_row:
                        lanes = min(16, (end_of_row - to - offset) >> 2)
                        total = merge(nothing if is_first else load(to + offset, lanes), vload(sums + offset))
                        vstore_part(to + offset, finish(total, size, small) if first >= last else total, lanes)
                        offset += 64
                else:
                    p0, p1, p2, p3 = nothing, nothing, nothing, nothing
                    if columns == _STRIP:
                        while at < stop:
                            p0 = add(p0, vload(at))
                            p1 = add(p1, vload(at + 64))
                            p2 = add(p2, vload(at + 128))
                            p3 = add(p3, vload(at + 192))
                            at += 4 * columns
                    else:
                        while at < stop:
                            p0 = add(p0, load(at, n0))
                            p1 = add(p1, load(at + 64, n1))
                            p2 = add(p2, load(at + 128, n2))
                            p3 = add(p3, load(at + 192, n3))
                            at += 4 * columns
                    t0, t1, t2, t3 = merge(t0, p0), merge(t1, p1), merge(t2, p2), merge(t3, p3)
                    if first >= last:
                        vstore_part(to, finish(t0, size, small), n0)
                        vstore_part(to + 64, finish(t1, size, small), n1)
                        vstore_part(to + 128, finish(t2, size, small), n2)
                        vstore_part(to + 192, finish(t3, size, small), n3)
                is_first = False

    return kernel, types.void(*[types.int64] * 13, types.float64, types.float64)


def _steps(step: str) -> tuple[Any, Any, Any, float]:
    """Return the steps that add an element, merge two intermediate results and merge all lanes, and the neutral element."""

    def plus(b: Builder, x: Value, y: Value) -> Value:
        return b.fadd(x, y)

    def absolute(b: Builder, total: Value, x: Value) -> Value:
        return b.fadd(total, call(b, "llvm.fabs.v16f32", x))

    def square(b: Builder, total: Value, x: Value) -> Value:
        return fma(b, x, x, total)

    add, merge, neutral = {
        "sum": (plus, plus, 0.0),
        "abs": (absolute, plus, 0.0),
        "square": (square, plus, 0.0),
        "max": (_larger, _larger, -math.inf),
        "min": (_smaller, _smaller, math.inf),
    }[step]

    @intrinsic
    def across(_: Any, value: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return fold(b, a[0], merge)

        return types.float32(vector), emit

    return _of_two(add), _of_two(merge), across, neutral


def _of_two(emit_value: Callable[[Builder, Value, Value], Value]) -> Any:
    @intrinsic
    def both(_: Any, x: Any, y: Any) -> Any:
        return vector(vector, vector), lambda context, b, sig, a: emit_value(b, a[0], a[1])

    return both


def _larger(b: Builder, x: Value, y: Value) -> Value:
    """Return the larger of two, NaN if either is."""
    first = b.or_(b.fcmp_ordered(">", x, y), b.fcmp_unordered("uno", x, x))
    return b.select(first, x, y)


def _smaller(b: Builder, x: Value, y: Value) -> Value:
    """Return the smaller of two, NaN if either is."""
    first = b.or_(b.fcmp_ordered("<", x, y), b.fcmp_unordered("uno", x, x))
    return b.select(first, x, y)


def _finish(result: str, root: bool) -> Any:
    def value(b: Builder, total: Value, count: Value, eps: Value) -> Value:
        if result == "mean":
            total = b.fdiv(total, count)
        elif result == "max":
            total = maximum(b, eps, total)
        elif result == "sum":
            total = b.fadd(total, eps)
        return call(b, "llvm.sqrt.v16f32", total) if root else total

    @intrinsic
    def finish(_: Any, total: Any, count: Any, eps: Any) -> Any:
        return vector(vector, vector, vector), lambda context, b, sig, a: value(b, *a)

    return finish
