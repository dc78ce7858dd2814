"""Tiles of a product in which the inputs of all rows and all columns are adjacent: lanes are inputs, and are added up last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .gemv_sums import carry
from .vec import (
    F32,
    I32,
    I64,
    LANES,
    VF,
    WIDTH,
    Builder,
    Value,
    call,
    constant,
    fma,
    lanes_below,
    load,
    maximum,
    pointer,
)


def make_dot_tiles(shapes: dict[int, tuple[int, int]]) -> Any:
    """Return the intrinsic that computes one of several tiles of rows and columns, 16 sums at most.

    Its arguments: the number of the tile; the address of the first row and the distance of the next one in bytes, the same of
    the columns; K; the address of results and the distance of their rows; addresses of the columns' bias and of a residual (0:
    none), the distance from a result to its residual, and the lower bounds before and after it is added.
    """

    @intrinsic
    def tile(
        _: Any, number: Any, left: Any, left_row: Any, right: Any, right_row: Any, K: Any, to: Any, to_row: Any, bias: Any,
        residual: Any, to_residual: Any, low: Any, bound: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            number, left, left_row, right, right_row, K, to, to_row, bias, residual, to_residual, low, bound = a
            done = b.append_basic_block("computed")
            # A number of no tile takes the last one's place.
            places = {number: b.append_basic_block("tile") for number in shapes}
            chosen = b.switch(number, list(places.values())[-1])
            for key, (rows, columns) in shapes.items():
                chosen.add_case(I64(key), places[key])
                b.position_at_end(places[key])
                lefts = [b.add(left, b.mul(left_row, I64(row))) for row in range(rows)]
                rights = [b.add(right, b.mul(right_row, I64(column))) for column in range(columns)]
                totals = _add_lanes(b, _emit_sums(b, lefts, rights, K))
                values = [_part(b, totals, row * columns, columns) for row in range(rows)]
                added = b.load(pointer(b, bias, values[0].type), align=4)
                values = [b.fadd(value, added) for value in values]
                places_of = [b.add(to, b.mul(to_row, I64(row))) for row in range(rows)]
                with b.if_else(b.icmp_signed("!=", residual, I64(0))) as branches:
                    for branch, has_residual in zip(branches, (True, False), strict=True):
                        with branch:
                            for value, at in zip(values, places_of, strict=True):
                                result = value
                                where = pointer(b, at, result.type)
                                if has_residual:
                                    beside = b.load(pointer(b, b.add(at, to_residual), result.type), align=4)
                                    result = b.fadd(maximum(b, _spread(b, low, result.type), result), beside)
                                b.store(maximum(b, _spread(b, bound, result.type), result), where, align=4)
                b.branch(done)
            b.position_at_end(done)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11, types.float32, types.float32), emit

    return tile


def _emit_sums(b: Builder, lefts: Sequence[Value], rights: Sequence[Value], K: Value) -> list[Value]:
    """Return the sums of each row's products with each column, lane by lane."""

    def step(read: Callable[[Value], Value], sums: Sequence[Value]) -> list[Value]:
        found = list(sums)
        # Those of which there are fewer stay in registers.
        outer, inner = (lefts, rights) if len(lefts) > len(rights) else (rights, lefts)
        kept = [read(at) for at in inner]
        for i, at in enumerate(outer):
            factor = read(at)
            for j, value in enumerate(kept):
                index = i * len(rights) + j if outer is lefts else j * len(rights) + i
                found[index] = fma(b, factor, value, found[index])
        return found

    def add(k: Value, sums: Sequence[Value]) -> list[Value]:
        place = b.mul(k, I64(4))
        return step(lambda at: load(b, b.add(at, place)), sums)

    def add_rest(k: Value, sums: Sequence[Value]) -> list[Value]:
        place, mask = b.mul(k, I64(4)), lanes_below(b, b.sub(K, k))

        def read(at: Value) -> Value:
            where = pointer(b, b.add(at, place), VF)
            return call(b, "llvm.masked.load.v16f32.p0", where, I32(4), mask, constant(0.0))

        return step(read, sums)

    whole = b.and_(K, I64(-LANES))
    sums = carry(b, I64(0), whole, WIDTH // 4, [constant(0.0)] * (len(lefts) * len(rights)), add)
    return carry(b, whole, K, WIDTH // 4, sums, add_rest)


def _add_lanes(b: Builder, values: list[Value]) -> Value:
    """Return a vector of the sums over the lanes of each of several vectors, 16 at most; behind them lanes of 0."""
    size = LANES
    values += [constant(0.0)] * ((1 << (len(values) - 1).bit_length()) - len(values))
    while len(values) > 1:
        # Each has parts of ``size`` lanes, of which the halves are added.
        size //= 2
        values = [_add_halves(b, x, y, size) for x, y in zip(values[::2], values[1::2], strict=True)]
    (total,) = values
    while size > 1:
        size //= 2
        total = _add_halves(b, total, None, size)
    return total


def _add_halves(b: Builder, x: Value, y: Value | None, size: int) -> Value:
    """Return the sums of the lower and the upper halves, of ``size`` lanes, of each part of one vector or of two."""
    lanes = x.type.count * (1 if y is None else 2)
    other = ir.Constant(x.type, ir.Undefined) if y is None else y
    order = [lane for lane in range(lanes) if lane // size % 2 == 0]
    kind = ir.VectorType(I32, len(order))
    low, high = (
        b.shuffle_vector(x, other, ir.Constant(kind, [lane + distance for lane in order])) for distance in (0, size)
    )
    return b.fadd(low, high)


def _part(b: Builder, value: Value, first: int, count: int) -> Value:
    """Return some lanes of a vector; one as a number."""
    if count == 1:
        return b.extract_element(value, I32(first))
    lanes = ir.Constant(ir.VectorType(I32, count), list(range(first, first + count)))
    return b.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), lanes)


def _spread(b: Builder, value: Value, kind: ir.Type) -> Value:
    """Return a number in every lane of a type, or as it is."""
    if kind == F32:
        return value
    undefined = ir.Constant(kind, ir.Undefined)
    first = b.insert_element(undefined, value, I32(0))
    return b.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count))
