"""Products of one row of bytes by the weights of 16 channels of all four gates, and their sums as float32.

Weights are groups of four inputs of 16 channels, 64 bytes each, a gate's groups side by side. Sums are in registers: those of a
gate are one vector if four bytes are multiplied at once, and two, of eight channels with two sums each, if they are widened to 16
bits before.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_dot import ONES, multiply_groups
from .vec import (
    I8,
    I16,
    I32,
    I64,
    LANES,
    VI,
    WIDTH,
    Builder,
    Value,
    call,
    constant,
    lanes_below,
    pointer,
    splat,
    vector,
)

GATES = 4
_HALF = ir.VectorType(I16, 16)
_V8 = ir.VectorType(I32, 8)


def make_bytes(how: str, bits: int) -> Any:
    """Return the intrinsic that multiplies bytes as they are: ``how`` is that of `multiply_groups`.

    Arguments: addresses of the row, of the weights of the first gate, bytes from gate to gate, groups, the address of the sums
    (s32, 64 bytes a gate).
    """

    @intrinsic
    def multiply(_: Any, row: Any, weights: Any, step: Any, groups: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            row, weights, step, groups, to = a
            gates = [b.add(weights, b.mul(step, I64(gate))) for gate in range(GATES)]

            def turn(number: Value, sums: list[Value]) -> list[Value]:
                word = splat(b, b.load(pointer(b, b.add(row, b.shl(number, I64(2))), I32), align=1))
                at = b.mul(number, I64(WIDTH))
                factors = [b.load(pointer(b, b.add(gate, at), VI), align=4) for gate in gates]
                return [
                    multiply_groups(b, how, bits, *pair) for pair in zip(sums, [word] * GATES, factors, strict=True)
                ]

            found = _loop(b, groups, [ir.Constant(VI, [0] * LANES)] * GATES, turn)
            for gate, value in enumerate(found):
                b.store(value, pointer(b, b.add(to, I64(WIDTH * gate)), VI), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return multiply


def make_pairs(bits: int) -> Any:
    """Return the intrinsic that multiplies a row of 16 bits by bytes that it widens, of two neighbouring gates.

    Arguments as `make_bytes`.
    """

    @intrinsic
    def multiply(_: Any, row: Any, weights: Any, step: Any, groups: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            row, weights, step, groups, to = a
            narrow = ir.VectorType(I8, 16)

            def turn(number: Value, sums: list[Value]) -> list[Value]:
                four = b.load(pointer(b, b.add(row, b.shl(number, I64(3))), I64), align=1)
                left = b.bitcast(splat(b, four, 4), _HALF)
                at, found = b.mul(number, I64(WIDTH)), []
                for gate in range(2):
                    block = b.add(b.add(weights, at), b.mul(step, I64(gate)))
                    for part in range(4):
                        bytes_ = b.load(pointer(b, b.add(block, I64(16 * part)), narrow), align=1)
                        found.append(_pairs(b, bits, left, b.sext(bytes_, _HALF)))
                return [b.add(*pair) for pair in zip(sums, found, strict=True)]

            found = _loop(b, groups, [ir.Constant(_V8, [0] * 8)] * 8, turn)
            order = [ir.Constant(_V8, list(range(first, 16, 2))) for first in (0, 1)]
            for number in range(4):
                low, high = found[2 * number : 2 * number + 2]
                value = b.add(*(b.shuffle_vector(low, high, each) for each in order))
                b.store(value, pointer(b, b.add(to, I64(32 * number)), _V8), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return multiply


def make_column_sums(how: str, bits: int) -> Any:
    """Return the intrinsic that adds up the weights of each of 16 channels of a gate.

    Arguments: addresses of the weights and of the sums (s32), groups.
    """

    @intrinsic
    def add_up(_: Any, weights: Any, to: Any, groups: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            weights, to, groups = a
            ones = ir.Constant(VI, [ONES[how]] * LANES)

            def turn(number: Value, sums: list[Value]) -> list[Value]:
                factor = b.load(pointer(b, b.add(weights, b.mul(number, I64(WIDTH))), VI), align=4)
                return [multiply_groups(b, how, bits, sums[0], ones, factor)]

            (found,) = _loop(b, groups, [ir.Constant(VI, [0] * LANES)], turn)
            b.store(found, pointer(b, to, VI), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), emit

    return add_up


@intrinsic
def scaled(
    _: Any, sums: Any, columns: Any, point: Any, points: Any, row_sum: Any, scales: Any, scale: Any, lanes: Any
) -> Any:
    """Return the products of a row as float32, in the first lanes.

    Arguments: addresses of the sums of a gate, of those of its weights (0: the row has no zero point), the zero point of the row;
    the address of the zero points of the weights (0: none), the sum of the row's numbers less their zero point; the address of
    the scales of the weights, the scale of the row, lanes.
    """

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        sums, columns, point, points, row_sum, scales, scale, lanes = a
        mask = lanes_below(b, lanes)
        total = b.load(pointer(b, sums, VI), align=4)

        def less(address: Value, factor: Value, mask: Value | None) -> Value:
            """Return ``total`` less a multiple of the numbers at an address, unless that is 0."""
            before = b.block
            with b.if_then(b.icmp_signed("!=", address, I64(0))):
                where = pointer(b, address, VI)
                if mask is None:
                    numbers = b.load(where, align=4)
                else:
                    zeros = ir.Constant(VI, [0] * LANES)
                    numbers = call(b, "llvm.masked.load.v16i32.p0", where, I32(4), mask, zeros, result=VI)
                changed = b.sub(total, b.mul(numbers, splat(b, b.trunc(factor, I32))))
                inside = b.block
            found = b.phi(VI)
            found.add_incoming(total, before)
            found.add_incoming(changed, inside)
            return found

        total = less(columns, point, None)
        total = less(points, row_sum, mask)
        factors = call(b, "llvm.masked.load.v16f32.p0", pointer(b, scales, vector.lanes), I32(4), mask, constant(0.0))
        factors = b.fmul(factors, splat(b, scale))
        return b.fmul(b.sitofp(total, vector.lanes), factors)

    return vector(*[types.int64] * 6, types.float32, types.int64), emit


@intrinsic
def widen(_: Any, bytes_: Any, to: Any, point: Any) -> Any:
    """Write 16 bytes at an address as numbers of 16 bits, less a zero point."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        value = b.zext(b.load(pointer(b, a[0], ir.VectorType(I8, 16)), align=1), _HALF)
        value = b.sub(value, splat(b, b.trunc(a[2], I16), 16))
        b.store(value, pointer(b, a[1], _HALF), align=1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), emit


@intrinsic
def sum_of_bytes(_: Any, at: Any) -> Any:
    """Return the sum of 16 bytes at an address."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        value = b.zext(b.load(pointer(b, a[0], ir.VectorType(I8, 16)), align=1), VI)
        return b.zext(call(b, "llvm.vector.reduce.add.v16i32", value, result=I32), I64)

    return types.int64(types.int64), emit


def _loop(b: Builder, count: Value, starts: list[Value], turn: Any) -> list[Value]:
    """Return values after ``count`` turns, one at least; a turn gets its number and the values."""
    before = b.block
    loop, done = b.append_basic_block("group"), b.append_basic_block("sums")
    b.branch(loop)
    b.position_at_end(loop)
    number = b.phi(I64)
    values = [b.phi(start.type) for start in starts]
    new = turn(number, values)
    following = b.add(number, I64(1))
    for phi, start, after in zip((number, *values), (I64(0), *starts), (following, *new), strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(after, loop)
    b.cbranch(b.icmp_signed("<", following, count), loop, done)
    b.position_at_end(done)
    return new


def _pairs(b: Builder, bits: int, left: Value, right: Value) -> Value:
    """Return the products of 16 numbers of 16 bits, added in pairs."""
    if bits > 128:
        return call(b, "llvm.x86.avx2.pmadd.wd", left, right, result=_V8)
    parts = []
    for start in (0, 8):
        order = ir.Constant(_V8, list(range(start, start + 8)))
        halves = [b.shuffle_vector(value, value, order) for value in (left, right)]
        parts.append(call(b, "llvm.x86.sse2.pmadd.wd", *halves, result=ir.VectorType(I32, 4)))
    return b.shuffle_vector(*parts, ir.Constant(_V8, list(range(8))))
