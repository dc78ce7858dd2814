"""Transpose 16 x 16 elements in registers: rows are loaded along one direction of memory and stored along the other."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .movement import Movement
from .vec import (
    I32,
    I64,
    LANES,
    VI,
    VM,
    Builder,
    Value,
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


def _transposed(b: Builder, rows: list[Value]) -> list[Value]:
    """Exchange the off-diagonal halves of ever larger blocks, up to as many lanes as rows: rounds of two-source shuffles."""
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
