"""Columns of rows that several vectors hold together, as windows see them that move by two to four columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.ir as ir
import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass

from .compiler import types
from .compiler.language import intrinsic
from .elements import elements, emit_load
from .inside import load_inside
from .vec import I32, I64, LANES, VI, Builder, Value, doubles, lanes_below, maximum, vector


@dataclass(frozen=True, slots=True)
class Columns:
    """Intrinsics on the columns of 16 windows, in as many vectors as these move by."""

    none: Any  #: (lanes) -> columns that are all these lanes
    take: Any  #: (columns, address) -> they combined with elements from an address on
    take_inside: Any  #: (columns, row, index, limit, other): the same from an index on, `other` outside of [0, limit)
    hide: Any  #: (columns, count, other) -> `other` in place of the first `count` columns, at most 16
    sort: Any  #: (columns in order) -> those whose numbers have the same remainder side by side
    along: Any  #: (sorted columns, those of the next windows) -> what each window sees of a row, combined
    apart: Any  #: (columns in order) -> the same, if no window sees others


def make_columns(dtype: str, stride: int, window: int, takes_max: bool, vectors: int = 0, step: int = 1) -> Columns:
    """Return the intrinsics for windows of ``window`` columns that move by ``stride``.

    Sorted columns are in as many vectors, 2 to 4; columns that `apart` sees are in any number of ``vectors``, and those of
    a window are ``step`` apart.
    """
    of = elements(dtype)
    lanes = vector if of.real is np.float32 else doubles
    count = vectors or stride
    bundle = types.Type(f"{count} of {lanes}", ir.LiteralStructType([lanes.lowered] * count))
    _, emit_inside = load_inside(dtype).typing(None, types.int64, types.int64, types.int64, lanes)

    def combine(b: Builder, x: Value, y: Value) -> Value:
        return maximum(b, x, y) if takes_max else b.fadd(x, y)

    def parts(b: Builder, value: Value) -> list[Value]:
        return [b.extract_value(value, number) for number in range(count)]

    def whole(b: Builder, values: Sequence[Value]) -> Value:
        found = ir.Constant(bundle.lowered, ir.Undefined)
        for number, value in enumerate(values):
            found = b.insert_value(found, value, number)
        return found

    @intrinsic
    def none(_: Any, lane: Any) -> Any:
        return bundle(lane), lambda context, b, sig, a: whole(b, [a[0]] * count)

    @intrinsic
    def take(_: Any, columns: Any, address: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            step = of.size * LANES
            found = [emit_load(b, b.add(a[1], I64(step * number)), dtype) for number in range(count)]
            return whole(b, [combine(b, x, y) for x, y in zip(found, parts(b, a[0]), strict=True)])

        return bundle(bundle, types.int64), emit

    @intrinsic
    def take_inside(
        _: Any, columns: Any, row: types.Integer, index: types.Integer, limit: types.Integer, other: Any
    ) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            before, row, index, limit, fill = a
            found = [
                emit_inside(context, b, sig, [row, b.add(index, I64(LANES * number)), limit, fill])
                for number in range(count)
            ]
            return whole(b, [combine(b, x, y) for x, y in zip(found, parts(b, before), strict=True)])

        return bundle(bundle, types.int64, types.int64, types.int64, lanes), emit

    @intrinsic
    def hide(_: Any, columns: Any, few: types.Integer, other: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            first, *rest = parts(b, a[0])
            return whole(b, [b.select(lanes_below(b, a[1]), a[2], first), *rest])

        return bundle(bundle, types.int64, lanes), emit

    @intrinsic
    def sort(_: Any, columns: Any) -> Any:
        return bundle(bundle), lambda context, b, sig, a: whole(b, _sorted(b, parts(b, a[0])))

    @intrinsic
    def along(_: Any, columns: Any, behind: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            here, ahead = (parts(b, value) for value in a)
            found: Value | None = None
            for column in range(window):
                distance, which = divmod(column, stride)
                numbers = range(distance, distance + LANES)
                value = _shuffled(b, here[which], ahead[which], numbers) if distance else here[which]
                found = value if found is None else combine(b, value, found)
            return found

        return lanes(bundle, bundle), emit

    @intrinsic
    def apart(_: Any, columns: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            values = parts(b, a[0])
            found: Value | None = None
            for column in range(window):
                value = _picked(b, values, [stride * lane + step * column for lane in range(LANES)])
                found = value if found is None else combine(b, value, found)
            return found

        return lanes(bundle), emit

    return Columns(none, take, take_inside, hide, sort, along, apart)


def _sorted(b: Builder, values: list[Value]) -> list[Value]:
    """Return lanes whose numbers have the same remainder of a division by the number of vectors, side by side."""
    count = len(values)
    if count == 4:
        # Half of the lanes twice, as for two: all shuffles have two vectors.
        low, high = _sorted(b, values[:2]), _sorted(b, values[2:])
        even, odd = (_sorted(b, [x, y]) for x, y in zip(low, high, strict=True))
        return [even[0], odd[0], even[1], odd[1]]
    found = []
    for first in range(count):
        numbers = range(first, LANES * count, count)
        value = _shuffled(b, values[0], values[1], [number % (2 * LANES) for number in numbers])
        if count == 3:
            below = [lane if number < 2 * LANES else number - LANES for lane, number in enumerate(numbers)]
            value = _shuffled(b, value, values[2], below)
        found.append(value)
    return found


def _picked(b: Builder, values: list[Value], numbers: Sequence[int]) -> Value:
    """Return lanes of several vectors by their numbers; lanes whose numbers are behind them are any."""
    found = values[0]
    for place, value in enumerate([*values[1:], *values[:1]][: max(1, len(values) - 1)], 1):
        first, end = LANES * place, LANES * (place + 1)
        before = numbers if place == 1 else range(LANES)
        found = _shuffled(
            b, found, value, [
                LANES + number - first if first <= number < end else max(0, min(own, LANES - 1))
                for own, number in zip(before, numbers, strict=True)
            ],
        )  # fmt: skip
    return found


def _shuffled(b: Builder, x: Value, y: Value, numbers: Sequence[int]) -> Value:
    return b.shuffle_vector(x, y, ir.Constant(VI, [I32(number) for number in numbers]))
