"""Reduce tensors whose dimensions are kept, reduced, kept, reduced and kept, in this order (any may be 1).

``row`` reduces contiguous runs, 16 of a run's elements a vector; ``strided`` has strips of 64 independent columns and
steps from row to row, with the sums of a group in scratch memory if there are several strips. The reduced elements are
cut into ``parts``, each with a result of its own, which another launch reduces again. Sums are added up in groups of
about the square root of their number, so that errors grow no faster. NaN anywhere makes the result NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import inlined, intrinsic
from .elements import elements
from .short_rows import MOST_COLUMNS, column_of
from .vec import (
    I16,
    VF,
    Builder,
    Value,
    apply,
    constant,
    fma,
    fold,
    larger,
    maximum,
    minimum,
    prefetch,
    smaller,
    vkeep_or,
)

#: Columns that an item of ``strided`` covers.
_STRIP: Final = 64
#: Strips that are reduced together; their sums are some KiB.
_BESIDE: Final = 16
#: Bytes of src above which rows are fetched ahead. If src is in a cache, fetching ahead only takes time: up to a third more.
_FAR: Final = 12 << 20
#: Elements of a row that are reduced one vector after the other: enough rows are under way at once.
_SHORT: Final = 256
#: Rows of up to 16 columns that are reduced without counting groups.
_FEW_ROWS: Final = 64


def make(
    isa: str, part: str, step: str, result: str, root: bool, src_type: str, dst_type: str
) -> tuple[Callable[..., None], Any]:
    """Return the kernel and its signature.

    ``step`` is the term of an element: ``sum``, ``mul``, ``max``, ``min``, ``abs`` or ``square``. ``result`` is the last step:
    nothing (empty), ``mean``, or the ``max`` or ``sum`` with eps, of which ``root`` takes the square root.
    """
    return (_row if part == "row" else _strided)(_steps(step), _finish(result, root), src_type, dst_type)


def _row(steps: tuple[Any, ...], finish: Any, src_type: str, dst_type: str) -> tuple[Callable[..., None], Any]:
    add, merge, across, one_nan, neutral = steps
    of, to = elements(src_type), elements(dst_type)
    width, real, load, load_part, fill = of.size, of.real, of.load, of.load_part, of.fill
    dst_width, store, store_one = to.size, to.store, to.store_one
    first_of_two, second_of_two = (column_of(src_type, 2, k) for k in range(2))
    first_of_three, second_of_three, third_of_three = (column_of(src_type, 3, k) for k in range(3))
    first_of_four, second_of_four, third_of_four, fourth_of_four = (column_of(src_type, 4, k) for k in range(4))

    @inlined
    def reduce_columns(at: int, columns: int, nothing: Any) -> Any:
        """Reduce 16 rows of 2 to 4 elements, the number of which is constant, in the order of lanes that are folded."""
        if columns == 2:
            total = merge(add(nothing, first_of_two(at)), add(nothing, second_of_two(at)))
        elif columns == 3:
            total = merge(add(nothing, first_of_three(at)), add(nothing, third_of_three(at)))
            total = merge(total, add(nothing, second_of_three(at)))
        else:
            total = merge(add(nothing, first_of_four(at)), add(nothing, third_of_four(at)))
            rest = merge(add(nothing, second_of_four(at)), add(nothing, fourth_of_four(at)))
            total = merge(total, rest)
        return one_nan(total)

    def kernel(
        begin: int, end: int, src: int, dst: int, outputs: int, kept: int, outer: int, inner: int, columns: int,
        parts: int, group: int, each: int, unused: int, also_unused: int, count: float, eps: float,
    ) -> None:  # fmt: skip
        nothing, size, small = fill(real(neutral)), fill(real(count)), fill(real(eps))
        step = 16 * width
        if parts == 1 and outer == 1 and inner <= _SHORT:
            # Without divisions of places, which take as long as some 50 elements.
            item = begin
            if 2 <= inner <= MOST_COLUMNS:
                while item + 16 <= end:
                    at = src + width * inner * item
                    if inner == 2:
                        total = reduce_columns(at, 2, nothing)
                    elif inner == 3:
                        total = reduce_columns(at, 3, nothing)
                    else:
                        total = reduce_columns(at, 4, nothing)
                    store(dst + dst_width * item, finish(total, size, small))
                    item += 16
            while item < end:
                at = src + width * inner * item
                left = inner
                total = nothing
                while left >= 16:
                    total = add(total, load(at))
                    at += step
                    left -= 16
                if left > 0:
                    total = add(total, vkeep_or(load_part(at, left), left, nothing))
                store_one(dst + dst_width * item, finish(fill(across(total)), size, small))
                item += 1
            return
        for item in range(begin, end):
            part = item // outputs
            output = item - part * outputs
            first = outer * inner * part // parts
            last = outer * inner * (part + 1) // parts
            before = output // kept
            base = src + width * inner * (before * outer * kept + output - before * kept)
            total = nothing
            while first < last:
                run = first // inner
                start = first - run * inner
                length = min(inner - start, last - first)
                first += length
                at = base + width * (run * kept * inner + start)
                stop = at + width * length
                while stop - at >= step:
                    until = min(stop, at + step * group)
                    p0, p1, p2, p3 = nothing, nothing, nothing, nothing
                    while until - at >= 4 * step:
                        p0 = add(p0, load(at))
                        p1 = add(p1, load(at + step))
                        p2 = add(p2, load(at + 2 * step))
                        p3 = add(p3, load(at + 3 * step))
                        at += 4 * step
                    while until - at >= step:
                        p0 = add(p0, load(at))
                        at += step
                    total = merge(total, merge(merge(p0, p1), merge(p2, p3)))
                if at < stop:
                    left = (stop - at) // width
                    total = add(total, vkeep_or(load_part(at, left), left, nothing))
            store_one(dst + dst_width * item, finish(fill(across(total)), size, small))

    return kernel, types.void(*[types.int64] * 14, types.float64, types.float64)


def _strided(steps: tuple[Any, ...], finish: Any, src_type: str, dst_type: str) -> tuple[Callable[..., None], Any]:
    add, merge, _, _, neutral = steps
    of, to_of = elements(src_type), elements(dst_type)
    width, real, fill, load_all, load_part = of.size, of.real, of.fill, of.load, of.load_part
    dst_width, store_all, store_part = to_of.size, to_of.store, to_of.store_part
    kept_as = of.lanes_as
    lane, load_sum, store_sum = kept_as.size, kept_as.load, kept_as.store
    load_total, store_total = kept_as.load_part, kept_as.store_part
    in_dst = kept_as is to_of

    @inlined
    def load(at: int, lanes: int) -> Any:
        return load_all(at) if lanes == 16 else load_part(at, lanes)

    @inlined
    def reduce_rows(at: int, stop: int, row: int, sums: int, columns: int, nothing: Any, is_far: bool) -> None:
        """Reduce rows of some columns to ``sums``, in the order of memory; fetch ahead what ``is_far``."""
        is_first = True
        while is_first or at < stop:
            together = 4 if stop - at > 3 * row else 1 if at < stop else 0
            for column in range(0, columns, 16):
                lanes = min(16, columns - column)
                to, place = sums + lane * column, at + width * column
                total = nothing if is_first else load_sum(to)
                if together > 0:
                    total = add(total, load(place, lanes))
                if together > 1:
                    if is_far:
                        # Rows are often pages of their own, at whose ends processors stop fetching ahead.
                        prefetch(place + 4 * row)
                        prefetch(place + 5 * row)
                        prefetch(place + 6 * row)
                        prefetch(place + 7 * row)
                    total = add(total, load(place + row, lanes))
                    total = add(total, load(place + 2 * row, lanes))
                    total = add(total, load(place + 3 * row, lanes))
                store_sum(to, total)
            at += row * together
            is_first = False

    @inlined
    def reduce_plane(at: int, stop: int, row: int, lanes: int, nothing: Any) -> Any:
        """Reduce rows of up to 16 columns, two at once."""
        p0, p1 = nothing, nothing
        while stop - at >= 2 * row:
            p0 = add(p0, load(at, lanes))
            p1 = add(p1, load(at + row, lanes))
            at += 2 * row
        if at < stop:
            p0 = add(p0, load(at, lanes))
        return merge(p0, p1)

    def kernel(
        begin: int, end: int, src: int, dst: int, outputs: int, kept: int, outer: int, inner: int, columns: int,
        parts: int, group: int, each: int, sums_of_strips: int, totals_of_strips: int, count: float, eps: float,
    ) -> None:  # fmt: skip
        nothing, size, small = fill(real(neutral)), fill(real(count)), fill(real(eps))
        strips = (columns + _STRIP - 1) // _STRIP
        n0 = min(16, columns)
        n1 = max(0, min(16, columns - 16))
        n2 = max(0, min(16, columns - 32))
        n3 = max(0, min(16, columns - 48))
        row, step, dst_step = width * columns, 16 * width, 16 * dst_width
        is_far = outputs * outer * inner * row > _FAR
        item = begin * each
        if parts == 1 and outer == 1 and inner <= _FEW_ROWS and columns <= 16:
            # Small planes take less time than divisions and masks: whole vectors are read up to the end of src, and written
            # where the next planes overwrite what is too much.
            plane, last_read = row * inner, src + outputs * row * inner - step
            last_whole = end * each * columns - 16
            while item < end * each:
                at, to = src + plane * item, dst + dst_width * columns * item
                stop = at + plane
                if stop - row <= last_read:
                    total = reduce_plane(at, stop, row, 16, nothing)
                else:
                    total = reduce_plane(at, stop, row, n0, nothing)
                if columns * item <= last_whole:
                    store_all(to, finish(total, size, small))
                else:
                    store_part(to, finish(total, size, small), n0)
                item += 1
            return
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
            base = src + width * inner * columns * (before * outer * kept + output - before * kept)
            wide = min(_STRIP * beside, columns - _STRIP * strip)
            sums = sums_of_strips + lane * _STRIP * (plane * strips + strip)
            to = dst + dst_width * (plane * columns + _STRIP * strip)
            # Sums of groups are in the destination if it holds them as they are.
            totals = to if in_dst else totals_of_strips + lane * _STRIP * (plane * strips + strip)
            t0, t1, t2, t3 = nothing, nothing, nothing, nothing
            is_first = True
            while is_first or first < last:
                run = first // max(1, inner)
                start = first - run * inner
                length = min(inner - start, last - first, group)
                first += length
                at = base + width * (columns * (run * kept * inner + start) + _STRIP * strip)
                stop = at + row * length
                if strips > 1:
                    if is_far:
                        reduce_rows(at, stop, row, sums, wide, nothing, True)
                    else:
                        reduce_rows(at, stop, row, sums, wide, nothing, False)
                    for column in range(0, wide, 16):
                        lanes = min(16, wide - column)
                        total = nothing if is_first else load_total(totals + lane * column, lanes)
                        total = merge(total, load_sum(sums + lane * column))
                        if first >= last:
                            store_part(to + dst_width * column, finish(total, size, small), lanes)
                        else:
                            store_total(totals + lane * column, total, lanes)
                else:
                    p0, p1, p2, p3 = nothing, nothing, nothing, nothing
                    if columns == _STRIP:
                        while at < stop:
                            p0 = add(p0, load_all(at))
                            p1 = add(p1, load_all(at + step))
                            p2 = add(p2, load_all(at + 2 * step))
                            p3 = add(p3, load_all(at + 3 * step))
                            at += row
                    elif columns <= 16:
                        # Several rows at once: one would wait for the row before.
                        while stop - at >= 4 * row:
                            p0 = add(p0, load(at, n0))
                            p1 = add(p1, load(at + row, n0))
                            p2 = add(p2, load(at + 2 * row, n0))
                            p3 = add(p3, load(at + 3 * row, n0))
                            at += 4 * row
                        while at < stop:
                            p0 = add(p0, load(at, n0))
                            at += row
                        p0 = merge(merge(p0, p1), merge(p2, p3))
                    else:
                        while at < stop:
                            p0 = add(p0, load(at, n0))
                            p1 = add(p1, load(at + step, n1))
                            p2 = add(p2, load(at + 2 * step, n2))
                            p3 = add(p3, load(at + 3 * step, n3))
                            at += row
                    t0, t1, t2, t3 = merge(t0, p0), merge(t1, p1), merge(t2, p2), merge(t3, p3)
                    if first >= last:
                        store_part(to, finish(t0, size, small), n0)
                        store_part(to + dst_step, finish(t1, size, small), n1)
                        store_part(to + 2 * dst_step, finish(t2, size, small), n2)
                        store_part(to + 3 * dst_step, finish(t3, size, small), n3)
                is_first = False

    return kernel, types.void(*[types.int64] * 14, types.float64, types.float64)


def _steps(step: str) -> tuple[Any, Any, Any, Any, float]:
    """Return the steps that add an element, merge two intermediate results and merge all lanes, and the neutral element.

    The step before the neutral element gives lanes that are NaN the bits that merged ones have.
    """

    def plus(b: Builder, x: Value, y: Value) -> Value:
        return b.fadd(x, y)

    def times(b: Builder, x: Value, y: Value) -> Value:
        return b.fmul(x, y)

    def absolute(b: Builder, total: Value, x: Value) -> Value:
        return b.fadd(total, apply(b, "fabs", x))

    def square(b: Builder, total: Value, x: Value) -> Value:
        # Squares of whole numbers are rounded as the reference rounds them.
        return fma(b, x, x, total) if x.type == VF else b.fadd(total, b.fmul(x, x))

    add, merge, neutral = {
        "sum": (plus, plus, 0.0),
        "mul": (times, times, 1.0),
        "abs": (absolute, plus, 0.0),
        "square": (square, plus, 0.0),
        "max": (larger, larger, -math.inf),
        "min": (smaller, smaller, math.inf),
    }[step]

    @intrinsic
    def across(_: Any, value: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            if step not in ("max", "min"):
                return fold(b, a[0], merge)
            # NaN is looked for once, in all lanes together.
            found = fold(b, a[0], maximum if step == "max" else minimum)
            nowhere = b.icmp_unsigned("==", b.bitcast(b.fcmp_unordered("uno", a[0], a[0]), I16), I16(0))
            return b.select(nowhere, found, ir.Constant(found.type, math.nan))

        return value.scalar(value), emit

    @intrinsic
    def one_nan(_: Any, value: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            if step not in ("max", "min"):
                return a[0]
            return b.select(b.fcmp_unordered("uno", a[0], a[0]), constant(math.nan, a[0].type), a[0])

        return value(value), emit

    return _of_two(add), _of_two(merge), across, one_nan, neutral


def _of_two(emit_value: Callable[[Builder, Value, Value], Value]) -> Any:
    @intrinsic
    def both(_: Any, x: Any, y: Any) -> Any:
        return x(x, x), lambda context, b, sig, a: emit_value(b, a[0], a[1])

    return both


def _finish(result: str, root: bool) -> Any:
    def value(b: Builder, total: Value, count: Value, eps: Value) -> Value:
        if result == "mean":
            total = b.fdiv(total, count)
        elif result == "max":
            total = maximum(b, eps, total)
        elif result == "sum":
            total = b.fadd(total, eps)
        return apply(b, "sqrt", total) if root else total

    @intrinsic
    def finish(_: Any, total: Any, count: Any, eps: Any) -> Any:
        return total(total, total, total), lambda context, b, sig, a: value(b, *a)

    return finish
