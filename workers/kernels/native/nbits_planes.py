"""Product by weights of 4 or 8 bits as bytes: src becomes three bytes an element, and sums of products are whole numbers.

An element of a block of inputs is a whole number of 24 bits times a power of two, and has three planes of bytes with signs. The
error of an element is up to 2**-23 of the greatest one of the block, about that of a sum in float32, and 0 for one of few bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np

from .compiler import types
from .compiler.language import intrinsic
from .gemv_sums import carry, spread
from .integer_dot import multiply_groups, register_bits
from .nbits_sums import GROUP, emit_zero
from .vec import (
    F32,
    I8,
    I32,
    I64,
    LANES,
    VF,
    VI,
    Builder,
    Value,
    apply,
    call,
    constant,
    emit_prefetch,
    fma,
    fstore,
    lanes_below,
    load,
    maximum,
    minimum,
    pointer,
    some_lanes,
    splat,
    vabs,
    vadd,
    vector,
    vload_part,
    vmax,
    vmax_lane,
    vmul,
    vset,
    vsum,
)

_BYTES: Final = ir.VectorType(I8, 32)
_SHORTS: Final = ir.VectorType(ir.IntType(16), LANES)
#: Bytes of an element of src.
PLANES: Final = 3
#: The greatest whole number, whose highest byte is 127, and the power of two that the greatest of a block has at least, or half.
_MOST: Final = (127 << 16) + (127 << 8) + 127
_POWER: Final = 1 << 22
#: The next power of two above `_MOST`, divided by it.
_ROOM: Final = np.float32(1.004)
#: Greatest elements below this count as much, so that quotients are finite.
_LEAST: Final = np.float32(1e-30)
#: Bytes of packed columns that are asked for before they are read, a line at each step.
_AHEAD: Final = 8192
#: Groups of a step of the loop over a block. Sums of 16 bits hold eight times two products of a number of 4 bits and a byte.
_TOGETHER: Final = 4


def make(isa: str, part: str, how: str, rows: int, bits: int, points: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for a ``part``: "planes" or "rows". Weights, scales and zero points are those of `matmul_nbits`.

    Bytes are multiplied by VNNI (``vnni``), or those of 4 bits with sums of 16 bits (``bytes``).

    "planes" writes the bytes of src: those of the inputs that a group of bytes of a column has, plane by plane, the highest
    first, and of each plane the inputs in the lowest bits first. Arguments: addresses of src, of the planes, and of two floats
    for each row and block: what whole numbers are multiplied with, and the sum of the inputs; K, inputs of a block (a
    multiple of 16), blocks. One item of work is a block of a row.

    "rows" multiplies tiles of ``rows`` rows; the last tile may begin before the one before it ends. Arguments: addresses of the
    planes, weights, scales, zero points, factors, sums, bias (0: none), dst; rows, columns, bytes of a block of a column,
    blocks, lines of zero points. One item of work is 16 columns.
    """
    if part == "planes":
        return _make_planes(bits)
    columns_of = _make_columns(register_bits(isa), how, rows, bits, points)
    wide = PLANES * 8 // bits

    def multiply(
        begin: int, end: int, planes: int, weights: int, scales: int, zeros: int, factors: int, sums: int, bias: int, dst: int,
        M: int, columns: int, nbytes: int, blocks: int, line: int,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            rest = min(16, columns - item * 16)
            added = vset(np.float32(0))
            if bias != 0:
                added = vload_part(bias + item * 64, rest)
            for tile in range((M + rows - 1) // rows):
                row = min(tile * rows, M - rows)
                columns_of(
                    weights + item * blocks * nbytes * 16, scales + item * blocks * 64, zeros + item * line,
                    planes + row * blocks * nbytes * wide, factors + row * blocks * 4, sums + row * blocks * 4,
                    nbytes, blocks, dst + (row * columns + item * 16) * 4, columns * 4, rest, added,
                )  # fmt: skip

    return multiply, types.void(*[types.int64] * 15)


@intrinsic
def power_of_two(_: Any, number: Any) -> Any:
    """Return the largest power of two up to a positive normal number; infinity remains."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return b.bitcast(b.and_(b.bitcast(a[0], I32), I32(0x7F800000)), F32)

    return types.float32(types.float32), emit


def _make_planes(bits: int) -> tuple[Callable[..., None], Any]:
    split = _make_split(bits)

    def write_planes(
        begin: int, end: int, src: int, to: int, factors: int, sums: int, K: int, size: int, blocks: int
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            row = item // blocks
            first = (item - row * blocks) * size
            source, left = src + (row * K + first) * 4, min(size, K - first)
            total, most = vset(np.float32(0)), vset(np.float32(0))
            for k in range(0, left, 16):
                value = vload_part(source + k * 4, min(16, left - k))
                total = vadd(total, value)
                most = vmax(vabs(value), most)
            greatest = vmax_lane(most)
            if greatest < _LEAST:
                greatest = _LEAST
            power = power_of_two(greatest * _ROOM)
            fstore(sums + item * 4, vsum(total))
            fstore(factors + item * 4, power / np.float32(_POWER))
            scale = vset(np.float32(_POWER) / power)
            for k in range(0, size, 16):
                count = max(0, min(16, left - k))
                split(vmul(vload_part(source + k * 4, count), scale), to + (item * size + k) * PLANES)

    return write_planes, types.void(*[types.int64] * 9)


def _make_split(bits: int) -> Any:
    """Return the intrinsic that writes the planes of 16 numbers."""
    count = 8 // bits
    inputs = GROUP * count
    #: Bytes have the inputs of their lowest bits first.
    order = [
        first + at for first in range(0, LANES, inputs) for part in range(count) for at in range(part, inputs, count)
    ]

    @intrinsic
    def split(_: Any, value: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            rounded = apply(b, "rint", a[0])
            # What is no number becomes one: the sum of its block is none.
            limited = minimum(b, maximum(b, rounded, constant(-_MOST)), constant(_MOST))
            number = b.fptosi(limited, VI)
            number = b.shuffle_vector(number, number, ir.Constant(VI, order))
            planes = []
            for plane in range(PLANES):
                low = b.ashr(b.shl(number, _ints(24)), _ints(24)) if plane < PLANES - 1 else number
                planes.append(b.trunc(low, ir.VectorType(I8, LANES)))
                number = b.ashr(b.sub(number, low), _ints(8))
            kind = ir.IntType(8 * inputs)
            for place, plane in enumerate(reversed(planes)):
                groups = b.bitcast(plane, ir.VectorType(kind, LANES // inputs))
                for group in range(LANES // inputs):
                    at = b.add(a[1], I64((group * PLANES + place) * inputs))
                    b.store(b.extract_element(groups, I32(group)), pointer(b, at, kind), align=1)
            return context.get_dummy_value()

        return types.void(vector, types.int64), emit

    return split


def _make_columns(width: int, how: str, rows: int, bits: int, points: str) -> Any:
    """Return the intrinsic that writes the products of ``rows`` rows and 16 columns.

    Its arguments: addresses of weights, scales, zero points, planes, factors and sums; bytes of a block, blocks; the address of
    dst, the distance of its rows in bytes, its columns (16 at most), and the bias as a vector.
    """
    count = 8 // bits
    #: Sums of one row: a lane of those of a plane waits for the one before it.
    apart = count if rows <= 2 and how == "vnni" else 1
    own_bits = sum(((1 << bits) - 1) << 8 * byte for byte in range(GROUP))

    @intrinsic
    def multiply(
        _: Any, weights: Any, scales: Any, zeros: Any, planes: Any, factors: Any, sums: Any, nbytes: Any, blocks: Any, dst: Any,
        step: Any, columns: Any, bias: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            weights, scales, zeros, planes, factors, sums, nbytes, blocks, dst, step, columns, bias = a
            lines = [b.add(planes, b.mul(b.mul(blocks, nbytes), I64(PLANES * count * row))) for row in range(rows)]

            def add(at: Value, values: Sequence[Value], groups: int) -> list[Value]:
                found = [b.bitcast(value, VI) for value in values]
                short: list[tuple[Value, ...]] = [() for _ in found]
                for number in range(groups):
                    place = b.add(at, I64(GROUP * number))
                    stored = load(b, b.add(weights, b.mul(place, I64(LANES))), VI)
                    for part in range(count):
                        shifted = b.lshr(stored, _ints(bits * part)) if part else stored
                        factor = shifted if bits == 8 else b.and_(shifted, _ints(own_bits))
                        for row, plane in itertools.product(range(rows), range(PLANES)):
                            offset = b.add(b.mul(place, I64(PLANES * count)), I64(GROUP * (plane * count + part)))
                            inputs = splat(b, b.load(pointer(b, b.add(lines[row], offset), I32), align=4))
                            index = (row * PLANES + plane) * apart + part % apart
                            if how == "vnni":
                                found[index] = multiply_groups(b, how, width, found[index], factor, inputs)
                            else:
                                short[index] = _added(b, short[index], factor, inputs)
                if how == "bytes":
                    found = [b.add(value, _widened(b, parts)) for value, parts in zip(found, short, strict=True)]
                return [b.bitcast(value, VF) for value in found]

            def steps(at: Value, values: Sequence[Value]) -> list[Value]:
                emit_prefetch(b, b.add(weights, b.add(b.mul(at, I64(LANES)), I64(_AHEAD))), 2)
                return add(at, values, _TOGETHER)

            def add_block(block: Value, totals: Sequence[Value]) -> list[Value]:
                first = b.mul(block, nbytes)
                last = b.add(first, nbytes)
                even = b.add(first, b.and_(nbytes, I64(-GROUP * _TOGETHER)))
                values = carry(b, first, even, GROUP * _TOGETHER, [constant(0.0)] * (rows * PLANES * apart), steps)
                values = carry(b, even, last, GROUP, values, lambda at, given: add(at, given, 1))
                scale, zero = load(b, b.add(scales, b.mul(block, I64(64)))), emit_zero(b, zeros, block, bits, points)
                found = []
                for row, total in enumerate(totals):
                    own = values[row * PLANES * apart : (row + 1) * PLANES * apart]
                    high, middle, low = (_total(b, own[at * apart : (at + 1) * apart]) for at in range(PLANES))
                    rest = b.sitofp(b.add(b.shl(middle, _ints(8)), low), VF)
                    whole = fma(b, b.sitofp(high, VF), constant(65536.0), rest)
                    place = b.mul(b.add(block, b.mul(blocks, I64(row))), I64(4))
                    moved = b.fmul(zero, spread(b, b.add(sums, place)))
                    value = fma(b, whole, spread(b, b.add(factors, place)), b.fneg(moved))
                    found.append(fma(b, scale, value, total))
                return found

            totals = carry(b, I64(0), blocks, 1, [constant(0.0)] * rows, add_block)
            mask = lanes_below(b, columns)
            for row, total in enumerate(totals):
                where = pointer(b, b.add(dst, b.mul(step, I64(row))), VF)
                value = b.fadd(total, bias)
                call(b, "llvm.masked.store.v16f32.p0", value, where, I32(4), mask, result=ir.VoidType())
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11, vector), emit

    return multiply


def _added(b: Builder, sums: tuple[Value, ...], left: Value, right: Value) -> tuple[Value, ...]:
    """Return sums of 16 bits, one for two bytes, of both halves of 16 columns, and the products of bytes."""
    found = []
    for half in range(2):
        factors = (b.bitcast(some_lanes(b, value, 8, 8 * half), _BYTES) for value in (left, right))
        products = call(b, "llvm.x86.avx2.pmadd.ub.sw", *factors, result=_SHORTS)
        found.append(b.add(sums[half], products) if sums else products)
    return tuple(found)


def _widened(b: Builder, sums: tuple[Value, ...]) -> Value:
    """Return the sum of neighbouring numbers of 16 bits."""
    ones = ir.Constant(_SHORTS, [1] * LANES)
    low, high = (call(b, "llvm.x86.avx2.pmadd.wd", part, ones, result=ir.VectorType(I32, 8)) for part in sums)
    return b.shuffle_vector(low, high, ir.Constant(VI, list(range(LANES))))


def _total(b: Builder, values: Sequence[Value]) -> Value:
    """Return the sum of vectors of whole numbers that are carried as floats."""
    total, *others = (b.bitcast(value, VI) for value in values)
    for other in others:
        total = b.add(total, other)
    return total


def _ints(value: int) -> ir.Constant:
    return ir.Constant(VI, [ir.Constant(I32, value)] * LANES)
