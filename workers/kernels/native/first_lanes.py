"""Store the first lanes of vectors, without masks where these cost much.

Processors without AVX-512 store half a vector by a mask in some 11 cycles, loads that follow do not find it before it is in the
cache, and there are no masks of one or two bytes a lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .vec import F64, I32, I64, LANES, Builder, Value, VectorType, call, isa_of, lanes_below, pointer

#: ISA levels whose processors store the lanes of a mask as fast as all.
HAVE_MASKS: Final = ("x86-64-v4",)


@intrinsic
def vstore_part(_: Any, address: types.Integer, value: VectorType, count: types.Integer) -> Any:
    """Store the first ``count`` (0 to 16) lanes; memory behind them is not touched."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        store_below(b, a[0], a[1], a[2])
        return context.get_dummy_value()

    return types.void(types.int64, value, types.int64), emit


def store_below(b: Builder, address: Value, value: Value, count: Value) -> None:
    """Store the first ``count`` (0 to 16) lanes of 16, by a mask if the processor's masks cost nothing."""
    if isa_of(b) in HAVE_MASKS:
        masked_store(b, value, address, lanes_below(b, count))
    else:
        store_first(b, [address], [value], count)


def masked_store(b: Builder, value: Value, address: Value, mask: Value) -> None:
    """Store the elements of a mask."""
    name = f"llvm.masked.store.{masked_kind(value.type.element)}.p0"
    call(b, name, value, pointer(b, address, value.type), I32(1), mask, result=ir.VoidType())


def masked_kind(kind: ir.Type) -> str:
    """Return LLVM's name of a vector of 16 elements."""
    if isinstance(kind, ir.IntType):
        return f"v{LANES}i{kind.width}"
    return f"v{LANES}f64" if kind == F64 else f"v{LANES}f32"


def store_first(b: Builder, places: Sequence[Value], values: Sequence[Value], count: Value) -> None:
    """Store the first ``count`` lanes of each vector to its address: all 16 if it is more, none if it is below 1."""
    with b.if_else(b.icmp_signed(">=", count, I64(16))) as (whole, partly):
        with whole:
            for at, value in zip(places, values, strict=True):
                b.store(value, pointer(b, at, value.type), align=1)
        with partly, b.if_then(b.icmp_signed(">", count, I64(0))):
            _store_pieces(b, places, values, count)


def _bytes(value: Value) -> int:
    """Return the bytes of a lane."""
    kind = value.type.element
    return kind.width // 8 if isinstance(kind, ir.IntType) else 8 if kind == F64 else 4


def _store_pieces(b: Builder, places: Sequence[Value], values: Sequence[Value], count: Value) -> None:
    """Store as many lanes as each bit of ``count``, 1 to 15, says; those that follow move to the front."""
    done: Value = I64(0)
    for lanes in (8, 4, 2, 1):
        kind = ir.VectorType(values[0].type.element, lanes)
        numbers = [ir.Constant(ir.VectorType(I32, lanes), [*range(first, first + lanes)]) for first in (0, lanes)]
        low, high = ([b.shuffle_vector(value, value, of) for value in values] for of in numbers)
        before, stored, after = b.block, b.append_basic_block("piece"), b.append_basic_block("next")
        b.cbranch(b.icmp_signed("!=", b.and_(count, I64(lanes)), I64(0)), stored, after)
        b.position_at_end(stored)
        for at, value in zip(places, low, strict=True):
            b.store(value, pointer(b, b.add(at, done), kind), align=1)
        b.branch(after)
        b.position_at_end(after)
        if lanes > 1:
            values = []
            for not_stored, following in zip(low, high, strict=True):
                value = b.phi(kind)
                value.add_incoming(not_stored, before)
                value.add_incoming(following, stored)
                values.append(value)
        done = b.shl(b.and_(count, I64(16 - lanes)), I64(_bytes(low[0]).bit_length() - 1))
