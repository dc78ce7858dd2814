"""Single numbers of right matrices of bytes as tiles read them, and what the sums of 16 columns begin with."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_copy import same_number
from .vec import I8, I16, I32, VI, Builder, Value, pointer, splat


def converted(b: Builder, value: Value, how: str, kind: str, less: Value) -> Value:
    """Return bytes as tiles read them."""
    if how == "pairs":
        wide = ir.VectorType(I16, value.type.count)
        return b.sub(b.sext(value, wide) if kind == "s8" else b.zext(value, wide), same_number(b, less, wide))
    return b.xor(value, ir.Constant(value.type, [128] * value.type.count)) if kind == "u8" else value


@intrinsic
def finish(_: Any, at: Any, base: Any, factor: Any, more: Any) -> Any:
    """Multiply 16 numbers (s32) by a factor, and add those at a second address and another number."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        at, base = (pointer(b, address, VI) for address in a[:2])
        factor, more = (splat(b, b.trunc(number, I32)) for number in a[2:])
        sums = b.mul(b.load(at, align=4), factor)
        b.store(b.add(b.add(sums, b.load(base, align=4)), more), at, align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), emit


def make_move(count: int, how: str, kind: str) -> Any:
    """Return the intrinsic that copies ``count`` numbers: address, address of the bytes, what numbers are less."""

    @intrinsic
    def move(_: Any, to: Any, at: Any, less: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            value = b.load(pointer(b, a[1], ir.VectorType(I8, count)), align=1)
            value = converted(b, value, how, kind, a[2])
            b.store(value, pointer(b, a[0], value.type), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), emit

    return move


def make_zero(size: int) -> Any:
    """Return the intrinsic that sets a number of ``size`` bytes to 0: address."""
    kind = {1: I8, 2: I16}[size]

    @intrinsic
    def zero(_: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            b.store(kind(0), pointer(b, a[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64), emit

    return zero
