"""Convolution of row-major planes by windows of one element, of few inputs a group: 16 neighbouring outputs a vector.

A tile is some vectors of each of some output channels: they share loads and weights. So planes are read and written in the
order in which they are, without reorders into blocks of channels and back. A work item is a piece of a row of one group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np

from .compiler import types
from .compiler.language import inlined, intrinsic
from .inside import load_inside
from .vec import (
    F32,
    I32,
    I64,
    LANES,
    VF,
    VI,
    Builder,
    Value,
    call,
    constant,
    fma,
    lanes_below,
    load,
    maximum,
    pointer,
    splat,
    store,
    vector,
)  # fmt: skip

#: Outputs whose weights one address reaches: a load adds a distance to it, or the double of one.
_REACH: Final = 3


def make(isa: str, rows: int, stride: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel for tiles of ``rows`` output channels, of which a group has as many at least; ``stride`` is 1 or 2.

    Arguments: addresses of src, weights (row-major), bias (0: none), dst and residual (0: none); groups, inputs and outputs of
    one; bytes of a plane of src, from slab to slab and from row to row that outputs are of; columns of src; rows of a slab, rows
    and columns of dst; columns of a piece; the lower bounds before and after the residual is added.
    """
    wide = 4 if isa == "x86-64-v4" else 1
    # Instructions beside the products take time where another thread shares the core, and tiles of AVX2 have more of them.
    whole = _make_tiles(rows, wide, stride, is_whole=True, is_unrolled=isa == "x86-64-v3")
    # Masks take registers, too.
    part = _make_tiles(rows if isa == "x86-64-v4" else min(rows, 2), 1, stride, is_whole=False, is_unrolled=False)

    def points(
        begin: int, end: int, src: int, weights: int, bias: int, dst: int, residual: int, groups: int, inputs: int,
        outputs: int, plane: int, slab: int, row: int, width: int, height: int, lines: int, columns: int, piece: int,
        low: float, bound: float,
    ) -> None:  # fmt: skip
        lower, upper = np.float32(low), np.float32(bound)
        pieces = (columns + piece - 1) // piece
        below = 4 * lines * columns
        for item in range(begin, end):
            rest = item // pieces
            column = (item - rest * pieces) * piece
            stop = min(column + piece, columns)
            number = rest // lines
            line = rest - number * lines
            depth = line // height
            group = number % groups
            source = src + number * inputs * plane + depth * slab + (line - depth * height) * row
            place = 4 * (line * columns + column) + number * outputs * below
            factors = weights + 4 * group * outputs * inputs
            biases = bias + 4 * group * outputs if bias != 0 else 0
            while column < stop:
                to = dst + place
                other = residual + place if residual != 0 else 0
                # The second vector of a stride of two ends one element behind the last that it sees.
                if column + 16 * wide <= stop and stride * (column + 16 * wide) <= width:
                    whole(outputs, source, plane, inputs, factors, biases, to, below, other, stride * column, width, 16,
                          lower, upper)  # fmt: skip
                    taken = 16 * wide
                else:
                    taken = min(16, stop - column)
                    part(outputs, source, plane, inputs, factors, biases, to, below, other, stride * column, width, taken,
                         lower, upper)  # fmt: skip
                column += taken
                place += 4 * taken

    return points, types.void(*[types.int64] * 18, types.float64, types.float64)


def _make_tiles(rows: int, vectors: int, stride: int, is_whole: bool, is_unrolled: bool) -> Any:
    """Return the function that computes some columns of all outputs of a group, which has ``rows`` of them at least.

    They are ``vectors`` whole ones, or part of one vector.
    """
    many, few = (_make_tile(count, vectors, stride, is_whole, is_unrolled) for count in (rows, 1))

    @inlined
    def tiles(
        outputs: int, source: int, plane: int, inputs: int, factors: int, biases: int, to: int, below: int, other: int,
        index: int, width: int, count: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        done = 0
        while done < outputs:
            if done + rows > outputs and other == 0:
                # Some rows twice take less time than a tile for each of the others.
                done = outputs - rows
            own, at = factors + 4 * inputs * done, to + below * done
            bias = biases + 4 * done if biases != 0 else 0
            beside = other + below * done if other != 0 else 0
            if done + rows <= outputs:
                many(source, plane, inputs, own, bias, at, below, beside, index, width, count, low, bound)
                done += rows
            else:
                few(source, plane, inputs, own, bias, at, below, beside, index, width, count, low, bound)
                done += 1

    return tiles


def _make_tile(rows: int, vectors: int, stride: int, is_whole: bool, is_unrolled: bool) -> Any:
    """Return the function that computes a tile of some output channels; its loop has four inputs a turn if it is unrolled."""
    bundle = types.Type(f"{rows * vectors} sums", ir.LiteralStructType([VF] * (rows * vectors)))
    _, emit_inside = load_inside("f32").typing(None, types.int64, types.int64, types.int64, vector)

    def whole(b: Builder, values: list[Value]) -> Value:
        found = ir.Constant(bundle.lowered, ir.Undefined)
        for number, value in enumerate(values):
            found = b.insert_value(found, value, number)
        return found

    def weight(b: Builder, address: Value) -> Value:
        return splat(b, b.load(pointer(b, address, F32), align=4))

    @intrinsic
    def none(_: Any) -> Any:
        return bundle(), lambda context, b, sig, a: whole(b, [constant(0.0)] * (rows * vectors))

    @intrinsic
    def biased(_: Any, biases: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            starts = [weight(b, b.add(a[0], I64(4 * row))) for row in range(rows)]
            return whole(b, [start for start in starts for _ in range(vectors)])

        return bundle(types.int64), emit

    @intrinsic
    def take(_: Any, sums: Any, line: Any, index: Any, width: Any, factors: Any, far: Any, below: Any) -> Any:
        """Add the products of a row of src, from an index on, with the weights of each output, those of later ones at ``far``."""

        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            sums, line, index, width, factors, far, below = a
            found = []
            for number in range(stride * vectors):
                at = b.add(index, I64(LANES * number))
                place = b.add(line, b.mul(at, I64(4)))
                inside = [line, at, width, constant(0.0)]
                found.append(load(b, place) if is_whole else emit_inside(context, b, sig, inside))
            if stride == 2:
                even = ir.Constant(VI, [I32(2 * lane) for lane in range(LANES)])
                found = [b.shuffle_vector(found[2 * n], found[2 * n + 1], even) for n in range(vectors)]
            values = []
            for row in range(rows):
                place = factors if row < _REACH else far
                factor = weight(b, b.add(place, b.mul(below, I64(row if row < _REACH else row - _REACH))))
                for number, seen in enumerate(found):
                    values.append(fma(b, seen, factor, b.extract_value(sums, row * vectors + number)))
            return whole(b, values)

        return bundle(bundle, *[types.int64] * 6), emit

    @intrinsic
    def hide(_: Any, address: Any) -> Any:
        """Return an address of which LLVM does not know how it was computed, before which it loads nothing that comes after."""

        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return b.asm(ir.FunctionType(I64, [I64]), "", "=r,0,~{memory}", [a[0]], True)

        return types.int64(types.int64), emit

    @intrinsic
    def finish(_: Any, sums: Any, to: Any, below: Any, other: Any, count: Any, low: Any, bound: Any) -> Any:
        """Store the sums, after the residual is added and the bounds are applied."""

        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            sums, to, below, other, count, low, bound = a
            values = [b.extract_value(sums, number) for number in range(rows * vectors)]
            offsets = [b.add(b.mul(below, I64(r)), I64(64 * v)) for r in range(rows) for v in range(vectors)]
            lower, upper = splat(b, low), splat(b, bound)
            mask = lanes_below(b, count)

            def added(value: Value, offset: Value) -> Value:
                place = b.add(other, offset)
                if is_whole:
                    residual = load(b, place)
                else:
                    where = pointer(b, place, VF)
                    residual = call(b, "llvm.masked.load.v16f32.p0", where, I32(4), mask, constant(0.0))
                return b.fadd(maximum(b, lower, value), residual)

            def put(value: Value, offset: Value) -> None:
                place, value = b.add(to, offset), maximum(b, upper, value)
                if is_whole:
                    store(b, place, value)
                else:
                    where = pointer(b, place, VF)
                    call(b, "llvm.masked.store.v16f32.p0", value, where, I32(4), mask, result=ir.VoidType())

            with b.if_else(b.icmp_signed("==", other, I64(0))) as (plain, beside):
                with plain:
                    for value, offset in zip(values, offsets, strict=True):
                        put(value, offset)
                with beside:
                    for value, offset in zip(values, offsets, strict=True):
                        put(added(value, offset), offset)
            return context.get_dummy_value()

        return types.void(bundle, *[types.int64] * 4, types.float32, types.float32), emit

    @inlined
    def tile(
        source: int, plane: int, inputs: int, factors: int, biases: int, to: int, below: int, other: int, index: int,
        width: int, count: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        sums = none()
        if biases != 0:
            sums = biased(biases)
        at, factor, left = source, factors, inputs
        if is_unrolled:
            far = factors + _REACH * 4 * inputs
            while left >= 4:
                factor, far = hide(factor), hide(far)
                sums = take(sums, at, index, width, factor, far, 4 * inputs)
                at = hide(at + plane)
                sums = take(sums, at, index, width, factor + 4, far + 4, 4 * inputs)
                at = hide(at + plane)
                sums = take(sums, at, index, width, factor + 8, far + 8, 4 * inputs)
                at = hide(at + plane)
                sums = take(sums, at, index, width, factor + 12, far + 12, 4 * inputs)
                at += plane
                factor += 16
                far += 16
                left -= 4
        for _ in range(left):
            sums = take(sums, at, index, width, factor, factor + _REACH * 4 * inputs, 4 * inputs)
            at += plane
            factor += 4
        finish(sums, to, below, other, count, low, bound)

    return tile
