"""Transpose 16 x 16 floats in registers: rows are loaded along one direction of memory and stored along the other."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba.core import types

from .vec import (
    I32,
    I64,
    LANES,
    VF,
    VI,
    VM,
    Builder,
    Value,
    call,
    constant,
    intrinsic,
    lanes_below,
    load,
    pointer,
    store,
)


@intrinsic
def transpose(_: Any, src: Any, row: Any, dst: Any, column: Any) -> Any:
    """Write element k of the row at ``src + j * row`` to lane j at ``dst + k * column``, j and k from 0 to 15."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        source, row_step, target, column_step = a
        rows = [load(b, b.add(source, b.mul(row_step, I64(j)))) for j in range(LANES)]
        for k, value in enumerate(_transposed(b, rows)):
            store(b, b.add(target, b.mul(column_step, I64(k))), value)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), emit


@intrinsic
def transpose_part(_: Any, src: Any, row: Any, dst: Any, column: Any, columns: Any) -> Any:
    """As `transpose`, for the first ``columns`` elements of each row; nothing else is touched."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        source, row_step, target, column_step, count = a
        mask = lanes_below(b, count)
        rows = []
        for j in range(LANES):
            where = pointer(b, b.add(source, b.mul(row_step, I64(j))), VF)
            rows.append(call(b, "llvm.masked.load.v16f32.p0", where, I32(4), mask, constant(0.0)))
        for k, value in enumerate(_transposed(b, rows)):
            with b.if_then(b.icmp_signed("<", I64(k), count)):
                store(b, b.add(target, b.mul(column_step, I64(k))), value)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), emit


@intrinsic
def transpose_pad(_: Any, src: Any, row: Any, dst: Any, column: Any, rows: Any, columns: Any) -> Any:
    """As `transpose_part`, with zeros in place of rows behind the first ``rows``, which are not read."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        source, row_step, target, column_step, row_count, count = a
        mask = lanes_below(b, count)
        none = ir.Constant(VM, [0] * LANES)
        rows = []
        for j in range(LANES):
            where = pointer(b, b.add(source, b.mul(row_step, I64(j))), VF)
            chosen = b.select(b.icmp_signed("<", I64(j), row_count), mask, none)
            rows.append(call(b, "llvm.masked.load.v16f32.p0", where, I32(4), chosen, constant(0.0)))
        for k, value in enumerate(_transposed(b, rows)):
            with b.if_then(b.icmp_signed("<", I64(k), count)):
                store(b, b.add(target, b.mul(column_step, I64(k))), value)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), emit


@intrinsic
def gather_rows(_: Any, src: Any, row: Any, last: Any, dst: Any, column: Any) -> Any:
    """As `transpose`, with rows behind number ``last`` read from that one."""

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


def _transposed(b: Builder, rows: list[Value]) -> list[Value]:
    """Exchange the off-diagonal halves of ever larger blocks: four rounds of two-source shuffles."""
    size = 1
    while size < LANES:
        low = ir.Constant(VI, [LANES + (lane ^ size) if lane & size else lane for lane in range(LANES)])
        high = ir.Constant(VI, [LANES + lane if lane & size else lane | size for lane in range(LANES)])
        new = list(rows)
        for i in range(LANES):
            if not i & size:
                new[i] = b.shuffle_vector(rows[i], rows[i + size], low)
                new[i + size] = b.shuffle_vector(rows[i], rows[i + size], high)
        rows, size = new, 2 * size
    return rows
