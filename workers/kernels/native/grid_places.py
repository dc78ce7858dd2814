"""Neighbours of the places of a grid along one dimension: where they are in a plane, and their weights.

A place is computed with in float64, whatever the type of the grid: the middle between two elements, where another rounding
would find another element, is exact.
"""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import inlined, intrinsic
from .elements import elements, narrowed
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
    apply,
    constant,
    doubles,
    dset,
    maximum,
    minimum,
    pointer,
    splat,
    unary,
    vabs,
    vadd,
    vfma,
    vmax,
    vmin,
    vmul,
    vsub,
)

#: A neighbour outside of the plane: three of them do not overflow, and no place in the plane makes up for one.
OUTSIDE: Final = -(1 << 29)
TAPS: Final = {"nearest": 1, "linear": 2, "cubic": 4}
#: The slope of the cubic function one element away.
_CUBIC: Final = -0.75
_REFLECTION: Final = 2

_floor = unary("Return the largest whole numbers that are not above.", lambda b, x: apply(b, "floor", x))
_rint = unary("Return the nearest whole numbers, of two the even one.", lambda b, x: apply(b, "rint", x))


def make_neighbours(algorithm: str, dtype: str, points: int, pairs: bool) -> Any:
    """Return a function (places, to, count, size, stride, padding, corners) that writes neighbours of float64 places.

    It writes for each neighbour an array of ``points`` int32, places times the stride or `OUTSIDE`, then for each an array of
    weights of ``dtype``. The padding is a number of `SAMPLE_PADDINGS`. Of ``pairs``, which are linear, it writes one place, from
    which both elements are in the plane, and as the weight of one that counts nothing -1.
    """
    taps, lane = TAPS[algorithm], elements(dtype).size
    load, keep, keep_pair = elements("f64").load, _make_keep(dtype), _make_keep_pair(dtype)

    @inlined
    def moved(place: Any, padding: int, corners: int, size: float) -> Any:
        """Return places that are moved to the edge, or mirrored there."""
        if padding == _REFLECTION:
            # A walk to and fro: the distance from the nearest even turn.
            low, span = (0.0 if corners else -0.5), (size - 1.0 if corners else size)
            away = vsub(place, dset(low))
            turns = _rint(vmul(away, dset(0.5 / span if span > 0.0 else 0.0)))
            place = vadd(vabs(vfma(turns, dset(-2.0 * span), away)), dset(low))
        return vmin(vmax(place, dset(0.0)), dset(size - 1.0))

    def for_tap(
        index: int, weight: int, first: Any, ratio: Any, tap: int, length: int, stride: int, padding: int, corners: int
    ) -> None:
        x = vabs(vsub(ratio, dset(tap - 1.0)))
        if tap == 0 or tap == 3:
            share = vfma(vfma(x, dset(_CUBIC), dset(-5.0 * _CUBIC)), x, dset(8.0 * _CUBIC))
            share = vfma(share, x, dset(-4.0 * _CUBIC))
        else:
            share = vfma(vmul(vfma(x, dset(_CUBIC + 2.0), dset(-_CUBIC - 3.0)), x), x, dset(1.0))
        near = vadd(first, dset(tap - 1.0))
        if padding:
            near = moved(near, padding, corners, float(length))
        keep(index + 4 * tap * points, weight + lane * tap * points, near, share, length, stride)

    def neighbours(places: int, to: int, count: int, length: int, stride: int, padding: int, corners: int) -> None:
        size = float(length)
        factor, shift = (0.5 * (size - 1.0) if corners else 0.5 * size), 0.5 * (size - 1.0)
        for at in range(0, count, 16):
            place = vfma(load(places + 8 * at), dset(factor), dset(shift))
            index, weight = to + 4 * at, to + 4 * taps * points + lane * at
            if algorithm == "nearest":
                # The mirror image of a half may be nearest to another element.
                place = _rint(place)
            if padding and algorithm != "cubic":
                place = moved(place, padding, corners, size)
            first = _rint(place) if algorithm == "nearest" else _floor(place)
            ratio = vsub(place, first)
            if pairs:
                keep_pair(index, weight, weight + lane * points, first, ratio, length)
            elif algorithm == "nearest":
                keep(index, weight, first, dset(1.0), length, stride)
            elif algorithm == "linear":
                keep(index, weight, first, vsub(dset(1.0), ratio), length, stride)
                second = vadd(first, dset(1.0))
                if padding:
                    second = moved(second, padding, corners, size)
                keep(index + 4 * points, weight + lane * points, second, ratio, length, stride)
            else:
                for_tap(index, weight, first, ratio, 0, length, stride, padding, corners)
                for_tap(index, weight, first, ratio, 1, length, stride, padding, corners)
                for_tap(index, weight, first, ratio, 2, length, stride, padding, corners)
                for_tap(index, weight, first, ratio, 3, length, stride, padding, corners)

    return neighbours


def _make_keep(dtype: str) -> Any:
    """Return the intrinsic (index, weight, place, share, size, stride) that stores places and weights, none outside."""
    kind = ir.VectorType(F64 if dtype == "f64" else F32, LANES)

    @intrinsic
    def keep(
        _: Any, index: types.Integer, weight: types.Integer, place: VectorType, share: VectorType, size: types.Integer,
        stride: types.Integer,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            last = splat(b, b.sitofp(b.sub(a[4], I64(1)), F64))
            found = minimum(b, maximum(b, a[2], constant(0.0, VD)), last)
            steps = b.mul(b.fptosi(found, VI), splat(b, b.trunc(a[5], I32)))
            inside = b.fcmp_ordered("==", found, a[2])
            b.store(b.select(inside, steps, splat(b, I32(OUTSIDE))), pointer(b, a[0], VI), align=4)
            kept = b.select(inside, a[3], constant(0.0, VD))
            b.store(narrowed(b, kept, dtype), pointer(b, a[1], kind), align=4)
            return context.get_dummy_value()

        address = types.int64
        return types.void(address, address, doubles, doubles, types.int64, types.int64), emit

    return keep


def _make_keep_pair(dtype: str) -> Any:
    """Return the intrinsic (index, weight of the left, of the right, first, ratio, size) that stores pairs of elements."""
    kind = ir.VectorType(F64 if dtype == "f64" else F32, LANES)

    @intrinsic
    def keep(
        _: Any, index: types.Integer, left: types.Integer, right: types.Integer, first: VectorType, ratio: VectorType,
        size: types.Integer,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            last = splat(b, b.sitofp(b.sub(a[5], I64(2)), F64))
            found = minimum(b, maximum(b, a[3], constant(0.0, VD)), last)
            b.store(b.fptosi(found, VI), pointer(b, a[0], VI), align=4)
            away, rest, nothing = b.fsub(a[3], found), b.fsub(constant(1.0, VD), a[4]), constant(-1.0, VD)
            inside = b.fcmp_ordered("==", away, constant(0.0, VD))
            for place, mine, shifted, other in ((a[1], rest, -1.0, a[4]), (a[2], a[4], 1.0, rest)):
                is_other = b.fcmp_ordered("==", away, constant(shifted, VD))
                weight = b.select(inside, mine, b.select(is_other, other, nothing))
                b.store(narrowed(b, weight, dtype), pointer(b, place, kind), align=4)
            return context.get_dummy_value()

        address = types.int64
        return types.void(address, address, address, doubles, doubles, types.int64), emit

    return keep
