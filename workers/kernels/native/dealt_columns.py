"""Deal the columns of a row to as many phases as a stride: columns that are a stride apart side by side, by shuffles alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .vec import F32, I32, I64, LANES, Builder, Value, call, isa_of, pointer, splat, store

#: Strides that are dealt: 4 by lanes of even and of odd number, twice; odd ones by taking each lane from one of the registers.
DEALT: Final = (3, 4, 5, 7)
#: Floats of a register.
_LANES: Final = {"x86-64-v4": 16, "x86-64-v3": 8}
_FEW_LANES: Final = 4


def make_deal(right: int, phases: Sequence[int], *, is_inside: bool) -> Any:
    """Return the intrinsic that deals 16 * ``right`` columns of a row and stores those of ``phases``, 16 of each.

    Arguments: address of the row; the first column, which may be before it, and its width; address of the copy, and bytes of a
    phase there. Columns outside of the row are zeros, and their memory is not read; none are if it ``is_inside``.
    """

    @intrinsic
    def deal(
        _: Any, line: types.Integer, first: types.Integer, width: types.Integer, to: types.Integer, phase: types.Integer
    ) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            row, column, end, target, nbytes = a
            lanes = _LANES.get(isa_of(b), _FEW_LANES)
            for block in range(0, LANES, lanes):
                places = [right * block + lanes * number for number in range(right)]
                registers = [_load(b, row, b.add(column, I64(place)), end, lanes, is_inside) for place in places]
                for number in phases:
                    dealt = _fourth(b, registers, number) if right == 4 else _lanes_of(b, registers, number)
                    store(b, b.add(b.add(target, I64(4 * block)), b.mul(nbytes, I64(number))), dealt)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return deal


def _load(b: Builder, row: Value, column: Value, end: Value, lanes: int, is_inside: bool) -> Value:
    """Load neighbouring columns of a row, zeros outside of it."""
    kind = ir.VectorType(F32, lanes)
    where = pointer(b, b.add(row, b.shl(column, I64(2))), kind)
    if is_inside:
        return b.load(where, align=4)
    numbers = b.add(splat(b, b.trunc(column, I32), lanes), ir.Constant(ir.VectorType(I32, lanes), [*range(lanes)]))
    mask = b.icmp_unsigned("<", numbers, splat(b, b.trunc(end, I32), lanes))
    return call(b, f"llvm.masked.load.v{lanes}f32.p0", where, I32(4), mask, ir.Constant(kind, None), result=kind)


def _shuffle(b: Builder, one: Value, other: Value, numbers: Sequence[int]) -> Value:
    return b.shuffle_vector(one, other, ir.Constant(ir.VectorType(I32, len(numbers)), [*numbers]))


def _fourth(b: Builder, registers: Sequence[Value], first: int) -> Value:
    """Return every fourth lane of four registers, from number ``first`` on."""
    lanes = registers[0].type.count
    low, high = (_shuffle(b, registers[n], registers[n + 1], range(first & 1, 2 * lanes, 2)) for n in (0, 2))
    return _shuffle(b, low, high, range(first >> 1, 2 * lanes, 2))


def _lanes_of(b: Builder, registers: Sequence[Value], first: int) -> Value:
    """Return the lanes that are as far apart as there are registers, an odd number, from number ``first`` on.

    Their places within registers, whose lanes are a power of two, are all different.
    """
    lanes = registers[0].type.count
    numbers = range(first, first + len(registers) * lanes, len(registers))
    sources = {number % lanes: number // lanes for number in numbers}
    found = registers[0]
    for index, register in enumerate(registers[1:], 1):
        found = _shuffle(b, found, register, [lane + lanes * (sources[lane] == index) for lane in range(lanes)])
    return _shuffle(b, found, found, [number % lanes for number in numbers])
