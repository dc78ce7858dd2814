"""The inner loops of a product by weights of 4 or 8 bits: 16 columns side by side, several rows of src at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .gemv_sums import carry, spread
from .vec import (
    I8,
    I32,
    I64,
    LANES,
    VF,
    VI,
    Builder,
    Value,
    call,
    constant,
    emit_prefetch,
    fma,
    lanes_below,
    load,
    pointer,
    splat,
    store,
    vector,
)

_VB: Final = ir.VectorType(I8, LANES)
#: Bytes of a column that are side by side, and whose numbers are multiplied in one step of a loop; blocks have a multiple of so
#: many.
GROUP: Final = 4
#: Bytes of packed columns that are asked for before they are read, a line at each step.
_AHEAD: Final = 8192
#: Sums of one row at most: so many are added at the same time.
_SUMS: Final = 4
#: ISA level -> sums of all rows that are worth having; with fewer registers, more would be on the stack.
_ALL: Final = {"x86-64-v4": 8}
_ALL_OF_FEW_REGISTERS: Final = 4


def make_columns(isa: str, rows: int, bits: int, points: str) -> Any:
    """Return the intrinsic that writes the products of ``rows`` rows and 16 columns.

    Its arguments: addresses of weights, scales, zero points, src and sums of its blocks; K, whole bytes of a column that K
    inputs take, bytes of a block, blocks; the address of dst, the distance of its rows in bytes, its columns (16 at most),
    and the bias as a vector.
    """
    table = isa == "x86-64-v4" and bits == 4
    per_row = max(1, min(_SUMS, _ALL.get(isa, _ALL_OF_FEW_REGISTERS) // rows))

    @intrinsic
    def multiply(
        _: Any, weights: Any, scales: Any, zeros: Any, src: Any, sums: Any, K: Any, whole: Any, nbytes: Any, blocks: Any,
        dst: Any, step: Any, columns: Any, bias: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            weights, scales, zeros, src, sums, K, whole, nbytes, blocks, dst, step, columns, bias = a
            lines = [b.add(src, b.mul(K, I64(4 * row))) for row in range(rows)]
            line_sums = [b.add(sums, b.mul(blocks, I64(4 * row))) for row in range(rows)]

            def add_block(block: Value, totals: Sequence[Value]) -> list[Value]:
                first = b.mul(block, nbytes)
                last = _least(b, b.add(first, nbytes), whole)

                def add(number: int, at: Value, values: list[Value], parts: int, shift: Value | int) -> None:
                    """Multiply the numbers of one byte of each column: the lowest one of the group at ``at`` after a shift."""
                    place = b.add(at, I64(number))
                    stored = load(b, b.add(weights, b.mul(b.and_(at, I64(-GROUP)), I64(LANES))), VI)
                    for part in range(parts):
                        factor = _number(b, stored, shift, part, bits, table)
                        offset = b.mul(b.add(b.mul(place, I64(8 // bits)), I64(part)), I64(4))
                        chain = (number * (8 // bits) + part) % per_row
                        for row in range(rows):
                            index = row * per_row + chain
                            values[index] = fma(b, factor, spread(b, b.add(lines[row], offset)), values[index])

                def steps(at: Value, values: Sequence[Value]) -> list[Value]:
                    found = list(values)
                    emit_prefetch(b, b.add(weights, b.add(b.mul(at, I64(16)), I64(_AHEAD))), 2)
                    for number in range(GROUP):
                        add(number, at, found, 8 // bits, 8 * number)
                    return found

                def single(at: Value, values: Sequence[Value], parts: int = 8 // bits) -> list[Value]:
                    found = list(values)
                    add(0, at, found, parts, _place_in_group(b, at))
                    return found

                even = b.add(first, b.and_(b.sub(last, first), I64(-GROUP)))
                values = carry(b, first, even, GROUP, [constant(0.0)] * (rows * per_row), steps)
                values = carry(b, even, last, 1, values, single)
                if bits == 4:
                    # An odd number of inputs leaves half of a byte.
                    end = b.select(b.icmp_signed("<", last, b.add(first, nbytes)), b.add(last, b.and_(K, I64(1))), last)
                    values = carry(b, last, end, 1, values, lambda at, given: single(at, given, 1))
                scale, zero = load(b, b.add(scales, b.mul(block, I64(64)))), emit_zero(b, zeros, block, bits, points)
                found = []
                for row, total in enumerate(totals):
                    mine = list(values[row * per_row : (row + 1) * per_row])
                    while len(mine) > 1:
                        mine = [b.fadd(x, y) for x, y in zip(mine[::2], mine[1::2], strict=True)]
                    moved = b.fmul(zero, spread(b, b.add(line_sums[row], b.mul(block, I64(4)))))
                    found.append(fma(b, scale, b.fsub(mine[0], moved), total))
                return found

            totals = carry(b, I64(0), blocks, 1, [constant(0.0)] * rows, add_block)
            mask = lanes_below(b, columns)
            for row, total in enumerate(totals):
                where = pointer(b, b.add(dst, b.mul(step, I64(row))), VF)
                value = b.fadd(total, bias)
                call(b, "llvm.masked.store.v16f32.p0", value, where, I32(4), mask, result=ir.VoidType())
            return context.get_dummy_value()

        return types.void(*[types.int64] * 12, vector), emit

    return multiply


def make_unpack(bits: int, points: str) -> Any:
    """Return the intrinsic that writes 16 columns as floats, those of one input side by side.

    Its arguments: addresses of weights, scales, zero points and of the result; K, bytes of a block, blocks.
    """
    count = 8 // bits

    @intrinsic
    def unpack(_: Any, weights: Any, scales: Any, zeros: Any, dst: Any, K: Any, nbytes: Any, blocks: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            weights, scales, zeros, dst, K, nbytes, blocks = a

            def write_block(block: Value, _: Sequence[Value]) -> list[Value]:
                first = b.mul(block, nbytes)
                last = _least(b, b.add(first, nbytes), b.sdiv(K, I64(count)))
                scale, zero = load(b, b.add(scales, b.mul(block, I64(64)))), emit_zero(b, zeros, block, bits, points)
                moved = b.fneg(b.fmul(scale, zero))

                def write(at: Value, parts: int) -> list[Value]:
                    stored = load(b, b.add(weights, b.mul(b.and_(at, I64(-GROUP)), I64(LANES))), VI)
                    for part in range(parts):
                        value = fma(b, _number(b, stored, _place_in_group(b, at), part, bits, False), scale, moved)
                        place = b.add(b.mul(at, I64(count)), I64(part))
                        store(b, b.add(dst, b.mul(place, I64(64))), value)
                    return []

                carry(b, first, last, 1, [], lambda at, _: write(at, count))
                if bits == 4:
                    end = b.select(b.icmp_signed("<", last, b.add(first, nbytes)), b.add(last, b.and_(K, I64(1))), last)
                    carry(b, last, end, 1, [], lambda at, _: write(at, 1))
                return []

            carry(b, I64(0), blocks, 1, [], write_block)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), emit

    return unpack


def _bytes(b: Builder, address: Value) -> Value:
    """Load a byte of each of 16 columns as int32."""
    return b.zext(b.load(pointer(b, address, _VB), align=1), VI)


def _place_in_group(b: Builder, at: Value) -> Value:
    """Return how many bits are below a byte in its group, in every lane."""
    return splat(b, b.trunc(b.mul(b.and_(at, I64(GROUP - 1)), I64(8)), I32))


def _number(b: Builder, stored: Value, shift: Value | int, part: int, bits: int, table: bool) -> Value:
    """Return a number of each group as float32; from a table of 16 if it has 4 bits and the processor looks up by them."""
    if not isinstance(shift, int):
        stored = b.lshr(stored, shift)
        shift = 0
    if shift + bits * part:
        stored = b.lshr(stored, _ints(shift + bits * part))
    if table:
        # The instruction reads the lowest 4 bits of each lane.
        numbers = ir.Constant(VF, [float(number) for number in range(16)])
        return call(b, "llvm.x86.avx512.permvar.sf.512", numbers, stored)
    return b.sitofp(b.and_(stored, _ints((1 << bits) - 1)), VF)


def emit_zero(b: Builder, zeros: Value, block: Value, bits: int, points: str) -> Value:
    """Return the zero points of 16 columns for a block."""
    if points == "floats":
        return load(b, b.add(zeros, b.mul(block, I64(64))))
    if not points:
        return constant(float(1 << (bits - 1)))
    count = 8 // bits
    stored = _bytes(b, b.add(zeros, b.mul(b.sdiv(block, I64(count)), I64(16))))
    shifts = splat(b, b.trunc(b.mul(b.srem(block, I64(count)), I64(bits)), I32))
    return b.sitofp(b.and_(b.lshr(stored, shifts), _ints((1 << bits) - 1)), VF)


def _least(b: Builder, x: Value, y: Value) -> Value:
    return b.select(b.icmp_signed("<", x, y), x, y)


def _ints(value: int) -> ir.Constant:
    return ir.Constant(VI, [ir.Constant(I32, value)] * LANES)
