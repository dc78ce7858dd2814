"""Transpose 16 x 16 elements in registers: rows are loaded along one direction of memory and stored along the other."""

from __future__ import annotations

import itertools
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .movement import Movement
from .vec import (
    F32,
    I8,
    I32,
    I64,
    LANES,
    VI,
    VM,
    Builder,
    Value,
    isa_of,
    lanes_below,
    load,
    pointer,
    store,
)


def transposes(movement: Movement) -> tuple[Any, Any, Any]:
    """Return intrinsics that transpose 16 x 16 elements, moved by ``movement``: whole, part and padded.

    The first writes element k of the row at ``src + j * row`` to lane j at ``dst + k * column``, j and k from 0 to 15. Its
    arguments are (src, row, dst, column). The second does so for the first ``columns`` elements of each row, a further
    argument; nothing else is written. The third has zeros in place of rows behind the first ``rows``, which are not read; its
    further arguments are rows and columns.
    """

    @intrinsic
    def whole(_: Any, src: Any, row: Any, dst: Any, column: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            source, row_step, target, column_step = a
            if movement == Movement("bits32", "bits32") and isa_of(b) == "x86-64-v3":
                _transpose_eights(b, *a)
                return context.get_dummy_value()
            rows = [movement.read(b, b.add(source, b.mul(row_step, I64(j))), None) for j in range(LANES)]
            for k, value in enumerate(_transposed(b, rows)):
                movement.write(b, b.add(target, b.mul(column_step, I64(k))), value)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), emit

    @intrinsic
    def part(_: Any, src: Any, row: Any, dst: Any, column: Any, columns: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            source, row_step, target, column_step, count = a
            mask = lanes_below(b, count)
            rows = [movement.read(b, b.add(source, b.mul(row_step, I64(j))), mask) for j in range(LANES)]
            for k, value in enumerate(_transposed(b, rows)):
                with b.if_then(b.icmp_signed("<", I64(k), count)):
                    movement.write(b, b.add(target, b.mul(column_step, I64(k))), value)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    @intrinsic
    def pad(_: Any, src: Any, row: Any, dst: Any, column: Any, rows: Any, columns: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            source, row_step, target, column_step, row_count, count = a
            mask = lanes_below(b, count)
            none = ir.Constant(VM, [0] * LANES)
            found = []
            for j in range(LANES):
                is_there = b.icmp_signed("<", I64(j), row_count)
                at = b.select(is_there, b.add(source, b.mul(row_step, I64(j))), source)
                found.append(movement.read(b, at, b.select(is_there, mask, none)))
            for k, value in enumerate(_transposed(b, found)):
                with b.if_then(b.icmp_signed("<", I64(k), count)):
                    movement.write(b, b.add(target, b.mul(column_step, I64(k))), value)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return whole, part, pad


def few_rows(movement: Movement) -> Any:
    """Return an intrinsic as the first of `transposes`, with rows behind number ``last``, a further argument, read from it."""

    @intrinsic
    def transpose_few(_: Any, src: Any, row: Any, dst: Any, column: Any, last: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            source, row_step, target, column_step, limit = a
            numbers = [b.select(b.icmp_signed("<", I64(j), limit), I64(j), limit) for j in range(LANES)]
            rows = [movement.read(b, b.add(source, b.mul(row_step, number)), None) for number in numbers]
            for k, value in enumerate(_transposed(b, rows)):
                movement.write(b, b.add(target, b.mul(column_step, I64(k))), value)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return transpose_few


#: The same for floats.
transpose, transpose_part, transpose_pad = transposes(Movement("bits32", "bits32"))


@intrinsic
def gather_rows(_: Any, src: Any, row: Any, last: Any, dst: Any, column: Any) -> Any:
    """As `transpose` for floats, with rows behind number ``last`` read from that one."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        source, row_step, limit, target, column_step = a
        rows = []
        for j in range(LANES):
            number = b.select(b.icmp_signed("<", I64(j), limit), I64(j), limit)
            rows.append(load(b, b.add(source, b.mul(row_step, number))))
        for k, value in enumerate(_transposed(b, rows)):
            store(b, b.add(target, b.mul(column_step, I64(k))), value)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), emit


@intrinsic
def gather_few_rows(_: Any, src: Any, row: Any, last: Any, dst: Any, column: Any) -> Any:
    """As `gather_rows`, for eight rows, whose eight elements of each column are stored."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        source, row_step, limit, target, column_step = a
        rows = []
        for j in range(LANES // 2):
            number = b.select(b.icmp_signed("<", I64(j), limit), I64(j), limit)
            rows.append(load(b, b.add(source, b.mul(row_step, number))))
        turned = _transposed(b, rows)
        for half in range(2):
            lanes = ir.Constant(
                ir.VectorType(I32, LANES // 2), [half * LANES // 2 + lane for lane in range(LANES // 2)]
            )
            for k, value in enumerate(turned):
                part = b.shuffle_vector(value, value, lanes)
                at = b.add(target, b.mul(column_step, I64(half * LANES // 2 + k)))
                b.store(part, pointer(b, at, part.type), align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), emit


def _transpose_eights(b: Builder, src: Value, row: Value, dst: Value, column: Value) -> None:
    """Transpose 16 x 16 floats as four times 8 x 8, which 16 registers of 256 bits hold.

    Halves of two rows are joined when they are loaded; then each shuffle is within 128 bits.
    """
    four, eight = ir.VectorType(F32, 4), ir.VectorType(F32, 8)

    def shuffled(x: Value, y: Value, lanes: tuple[int, ...]) -> Value:
        return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, 8), list(lanes)))

    lines = [b.add(src, b.mul(row, I64(j))) for j in range(LANES)]
    for first, half in itertools.product(range(0, LANES, 8), range(0, LANES, 8)):
        turned = []
        for begin in (half, half + 4):
            found = []
            for j in range(first, first + 4):
                low, high = (b.load(pointer(b, b.add(lines[at], I64(4 * begin)), four), align=4) for at in (j, j + 4))
                found.append(shuffled(low, high, tuple(range(8))))
            pairs = [
                shuffled(found[n], found[n + 1], lanes)
                for lanes in ((0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15))
                for n in (0, 2)
            ]
            turned += [
                shuffled(pairs[n], pairs[n + 1], lanes)
                for n in (0, 2)
                for lanes in ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
            ]
        for k, value in enumerate(turned):
            place = b.add(b.add(dst, b.mul(column, I64(half + k))), I64(4 * first))
            b.store(value, pointer(b, place, eight), align=4)


def _transposed(b: Builder, rows: list[Value]) -> list[Value]:
    """Exchange the off-diagonal halves of ever larger blocks, up to as many lanes as rows: rounds of two-source shuffles.

    Bytes are interleaved instead, which processors do in one instruction each; exchanged, they would take two or three.
    """
    if len(rows) == LANES and rows[0].type.element == I8:
        return _interleaved(b, rows)
    size = 1
    while size < len(rows):
        low = ir.Constant(VI, [LANES + (lane ^ size) if lane & size else lane for lane in range(LANES)])
        high = ir.Constant(VI, [LANES + lane if lane & size else lane | size for lane in range(LANES)])
        new = list(rows)
        for i in range(len(rows)):
            if not i & size:
                new[i] = b.shuffle_vector(rows[i], rows[i + size], low)
                new[i + size] = b.shuffle_vector(rows[i], rows[i + size], high)
        rows, size = new, 2 * size
    return rows


def _interleaved(b: Builder, rows: list[Value]) -> list[Value]:
    """Return the columns of 16 rows: four rounds in which the lanes of rows that are eight apart are interleaved."""
    half = LANES // 2
    halves = [
        ir.Constant(VI, [lane for pair in range(first, first + half) for lane in (pair, LANES + pair)])
        for first in (0, half)
    ]
    for _ in range(4):
        rows = [b.shuffle_vector(rows[n], rows[n + half], lanes) for n in range(half) for lanes in halves]
    return rows
