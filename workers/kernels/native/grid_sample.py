"""Sample planes at the places of a grid: first the neighbours of some places, then what they add up to in each channel.

The table has (size, elements from index to index, number in a place) of three dimensions, of which the last has adjacent
elements. Missing ones come first and have the size 0. Neighbours of `POINTS` places are on the stack: along each dimension as
`grid_places` writes them, then joined, as arrays of places in the plane and of weights. Two along the last dimension are read as
one pair of f32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np

from .compiler import types
from .compiler.language import inlined, intrinsic
from .elements import elements
from .grid_places import TAPS, make_neighbours
from .stack_room import stack_room
from .vec import (
    F32,
    F64,
    I32,
    I64,
    LANES,
    VD,
    VI,
    Builder,
    Value,
    VectorType,
    constant,
    dload,
    doubles,
    dstore,
    fload,
    fma,
    iload,
    pointer,
    vector,
    veven,
    vfma,
    vload,
    vmul,
    vodd,
)

#: Places whose neighbours are known at a time.
POINTS: Final = 128
_AXES: Final = 3
_ZEROS: Final = ir.Constant(VI, [0] * LANES)


def make(isa: str, algorithm: str, dtype: str, wide: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature, for planes of f32 or f64 and a grid of f64 if it is ``wide``, else of f32."""
    of, taps, pairs = elements(dtype), TAPS[algorithm], algorithm == "linear" and dtype == "f32"
    size, fill, real, weights = of.size, of.fill, of.real, of.load
    load_place, place_size = (dload, 8) if wide else (fload, 4)
    keep_double = elements("f64").store
    axis_bytes = taps * POINTS * (4 + size)
    last_taps = 1 if pairs else taps
    joined_bytes = 4 * taps * taps * last_taps * POINTS
    memory = stack_room(_AXES * (axis_bytes + 8 * POINTS) + 2 * joined_bytes + size // 4 * joined_bytes)
    join, gather, gather_pair = (
        _make_join(joined_bytes),
        _make_gather(dtype, joined_bytes),
        _make_gather_pair(joined_bytes),
    )
    neighbours = make_neighbours(algorithm, dtype, POINTS, pairs=False)
    last_neighbours = make_neighbours(algorithm, dtype, POINTS, pairs)

    @inlined
    def spread(grid: int, places: int, axes: int, count: int) -> None:
        """Write the numbers of places apart, as float64, and zeros up to a whole vector."""
        whole = 0
        if axes == 2 and not wide:
            whole = count & -16
            for at in range(0, whole, 16):
                one, two = vload(grid + 8 * at), vload(grid + 8 * at + 64)
                keep_double(places + 8 * at, _vwide(veven(one, two)))
                keep_double(places + 8 * (POINTS + at), _vwide(vodd(one, two)))
        for each in range(axes):
            for at in range(whole, count):
                number = load_place(grid + place_size * (at * axes + each))
                dstore(places + 8 * (each * POINTS + at), np.float64(number))
            for at in range(count, (count + 15) & -16):
                dstore(places + 8 * (each * POINTS + at), 0.0)

    @inlined
    def join_taps(room: int, joined: int, far_taps: int, low_taps: int, count: int) -> None:
        """Write the neighbours in the plane: those of the last dimension innermost, pairs as one."""
        for at in range(0, count, 16):
            deep, high, near = room + 4 * at, room + axis_bytes + 4 * at, room + 2 * axis_bytes + 4 * at
            # From the places of neighbours to their weights.
            apart = 4 * taps * POINTS + (size - 4) * at
            to, kept = joined + 4 * at, joined + 2 * joined_bytes + size * at
            for far in range(0, far_taps * POINTS, POINTS):
                for low in range(0, low_taps * POINTS, POINTS):
                    for tap in range(0, last_taps * POINTS, POINTS):
                        join(to, deep + 4 * far, high + 4 * low, near + 4 * tap)
                        if taps > 1:
                            share = vmul(weights(deep + apart + size * far), weights(high + apart + size * low))
                            of.store(kept, share if pairs else vmul(share, weights(near + apart + size * tap)))
                        to += 4 * POINTS
                        kept += size * POINTS

    def kernel(
        begin: int, end: int, src: int, grid: int, dst: int, table: int, axes: int, channels: int, plane: int, points: int,
        chunk: int, padding: int, corners: int,
    ) -> None:  # fmt: skip
        room = memory()
        places = room + _AXES * axis_bytes
        joined = places + 8 * _AXES * POINTS
        edges = room + 2 * axis_bytes + 4 * taps * POINTS
        far_taps, low_taps = (taps if axes > 2 else 1), (taps if axes > 1 else 1)
        for axis in range(_AXES - axes):
            for at in range(0, POINTS, 16):
                _keep_zeros(room + axis * axis_bytes + 4 * at)
                of.store(room + axis * axis_bytes + 4 * taps * POINTS + size * at, fill(real(1.0)))
        pieces = (points + chunk - 1) // chunk
        for item in range(begin, end):
            image = item // pieces
            first = (item - image * pieces) * chunk
            for start in range(first, min(points, first + chunk), POINTS):
                count = min(POINTS, min(points, first + chunk) - start)
                spread(grid + place_size * axes * (image * points + start), places, axes, count)
                for axis in range(_AXES - axes, _AXES):
                    record = table + 24 * axis
                    mine, to = places + 8 * POINTS * iload(record + 16), room + axis * axis_bytes
                    if axis < 2:
                        neighbours(mine, to, count, iload(record), iload(record + 8), padding, corners)
                    else:
                        last_neighbours(mine, to, count, iload(record), 1, padding, corners)
                join_taps(room, joined, far_taps, low_taps, count)
                for channel in range(image * channels, (image + 1) * channels):
                    source, target = src + size * channel * plane, dst + size * (channel * points + start)
                    for at in range(0, count, 16):
                        near, kept = joined + 4 * at, joined + 2 * joined_bytes + size * at
                        value = fill(real(0.0))
                        if taps == 1:
                            value = gather(source, near)
                        elif pairs:
                            left, right = weights(edges + 4 * at), weights(edges + 4 * (POINTS + at))
                            for _ in range(far_taps * low_taps):
                                value = vfma(gather_pair(source, near, left, right), weights(kept), value)
                                near += 4 * POINTS
                                kept += 4 * POINTS
                        else:
                            for _ in range(far_taps * low_taps * last_taps):
                                value = vfma(gather(source, near), weights(kept), value)
                                near += 4 * POINTS
                                kept += size * POINTS
                        if at + 16 <= count:
                            of.store(target + size * at, value)
                        else:
                            of.store_part(target + size * at, value, count & 15)

    return kernel, types.void(*[types.int64] * 13)


@intrinsic
def _vwide(_: Any, value: VectorType) -> Any:
    """Return float32 as float64."""
    return doubles(vector), lambda context, b, sig, a: b.fpext(a[0], VD)


@intrinsic
def _keep_zeros(_: Any, address: types.Integer) -> Any:
    """Store 16 places that are 0."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        b.store(_ZEROS, pointer(b, a[0], VI), align=4)
        return context.get_dummy_value()

    return types.void(types.int64), emit


def _make_join(apart: int) -> Any:
    @intrinsic
    def join(_: Any, to: types.Integer, deep: types.Integer, high: types.Integer, near: types.Integer) -> Any:
        """Store sums of places along three dimensions, negative ones outside ``apart`` from 0 in place of them."""

        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            deep, high, near = (b.load(pointer(b, address, VI), align=4) for address in a[1:])
            total = b.add(b.add(deep, high), near)
            inside = b.icmp_signed(">=", total, _ZEROS)
            b.store(b.select(inside, total, _ZEROS), pointer(b, a[0], VI), align=4)
            b.store(total, pointer(b, b.add(a[0], I64(apart)), VI), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), emit

    return join


def _gathered(b: Builder, source: Value, near: Value, size: int, kind: ir.Type, apart: int) -> tuple[Value, Value]:
    """Return what is at places of ``size`` bytes, and which are inside.

    Each place is loaded for itself: instructions that gather take longer on processors of AMD, and are not part of all levels.
    """
    inside = b.icmp_signed(">=", b.load(pointer(b, b.add(near, I64(apart)), VI), align=4), _ZEROS)
    found = ir.Constant(ir.VectorType(kind, LANES), ir.Undefined)
    for lane in range(LANES):
        number = b.sext(b.load(pointer(b, b.add(near, I64(4 * lane)), I32), align=4), I64)
        place = pointer(b, b.add(source, b.mul(number, I64(size))), kind)
        found = b.insert_element(found, b.load(place, align=4), I32(lane))
    return found, inside


def _make_gather(dtype: str, apart: int) -> Any:
    kind, size, lanes = (F64, 8, doubles) if dtype == "f64" else (F32, 4, vector)

    @intrinsic
    def gather(_: Any, source: types.Integer, near: types.Integer) -> Any:
        """Return elements at joined places, zeros outside."""

        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            found, inside = _gathered(b, a[0], a[1], size, kind, apart)
            return b.select(inside, found, ir.Constant(found.type, None))

        return lanes(types.int64, types.int64), emit

    return gather


def _make_gather_pair(apart: int) -> Any:
    @intrinsic
    def gather(_: Any, source: types.Integer, near: types.Integer, left: VectorType, right: VectorType) -> Any:
        """Return sums of pairs of float32 at joined places times their weights if these are not negative, zeros outside."""

        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            found, inside = _gathered(b, a[0], a[1], 4, I64, apart)
            found, zeros, parts = b.bitcast(found, ir.VectorType(F32, 2 * LANES)), constant(0.0), []
            for side, weight in enumerate(a[2:]):
                numbers = ir.Constant(VI, list(range(side, 2 * LANES, 2)))
                part = b.shuffle_vector(found, ir.Constant(found.type, ir.Undefined), numbers)
                parts.append(b.select(b.fcmp_unordered("<", weight, zeros), zeros, part))
            total = fma(b, parts[0], a[2], b.fmul(parts[1], a[3]))
            return b.select(inside, total, zeros)

        return vector(types.int64, types.int64, vector, vector), emit

    return gather
