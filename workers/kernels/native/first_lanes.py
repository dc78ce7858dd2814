"""Store the first lanes of vectors without masks: a masked store takes tens of nanoseconds on processors without AVX-512."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import llvmlite.ir as ir

from .vec import I8, I32, I64, Builder, Value, pointer

#: ISA levels whose processors store the lanes of a mask as fast as all.
HAVE_MASKS: Final = ("x86-64-v4",)


def store_first(b: Builder, places: Sequence[Value], values: Sequence[Value], count: Value) -> None:
    """Store the first ``count`` lanes of each vector to its address: all 16 if it is more, none if it is below 1.

    Lanes have 4 bytes or 1.
    """
    with b.if_else(b.icmp_signed(">=", count, I64(16))) as (whole, partly):
        with whole:
            for at, value in zip(places, values, strict=True):
                b.store(value, pointer(b, at, value.type), align=_bytes(value))
        with partly, b.if_then(b.icmp_signed(">", count, I64(0))):
            _store_pieces(b, places, values, count)


def _bytes(value: Value) -> int:
    """Return the bytes of a lane."""
    return 1 if value.type.element == I8 else 4


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
            b.store(value, pointer(b, b.add(at, done), kind), align=_bytes(value))
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
