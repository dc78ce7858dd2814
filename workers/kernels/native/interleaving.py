"""Vectors whose lanes take turns in memory."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir

from .elements import emit_load_tail
from .functions import emit_chain
from .vec import I32, I64, LANES, VF, VI, WIDTH, Builder, Value, call, lanes_below, pointer, store


def write_interleaved(
    b: Builder, chain: tuple[Any, ...], values: list[Value], to: Value, other: Value, left: Value
) -> None:  # fmt: skip
    """Store lanes of vectors in turn, after post-ops, but at most ``left`` elements."""
    reads = any(kind == "binary" for kind, *_ in chain)
    for number, value in enumerate(_interleaved(b, values)):
        place, rest = b.add(to, I64(WIDTH * number)), b.sub(left, I64(LANES * number))
        with b.if_then(b.icmp_signed(">", rest, I64(0))):
            beside = None
            if reads:
                count = b.select(b.icmp_signed("<", rest, I64(LANES)), rest, I64(LANES))
                beside = emit_load_tail(b, b.add(other, I64(WIDTH * number)), count, "f32")
            result = emit_chain(b, chain, value, beside)
            with b.if_else(b.icmp_signed(">=", rest, I64(LANES))) as (whole, part):
                with whole:
                    store(b, place, result)
                with part:
                    mask, where = lanes_below(b, rest), pointer(b, place, VF)
                    call(b, "llvm.masked.store.v16f32.p0", result, where, I32(4), mask, result=ir.VoidType())


def _interleaved(b: Builder, values: list[Value]) -> list[Value]:
    """Return vectors with the first lanes of all vectors, then their second lanes, and so on."""
    count = len(values)
    if count == 1:
        return values
    if count % 2:
        return [_taken(b, values, [LANES * number + lane for lane in range(LANES)]) for number in range(count)]
    return [
        b.shuffle_vector(even, odd, ir.Constant(VI, [first + lane // 2 + LANES * (lane % 2) for lane in range(LANES)]))
        for even, odd in zip(_interleaved(b, values[::2]), _interleaved(b, values[1::2]), strict=True)
        for first in (0, LANES // 2)
    ]


def _taken(b: Builder, values: list[Value], places: list[int]) -> Value:
    """Return a vector of the elements in these places, of those of all vectors in turn."""
    result = values[0]
    lanes = [place // len(values) for place in places]
    for number, value in enumerate(values[1:], 1):
        # Lanes that another vector has given stay, those of vectors to come do not matter.
        chosen = [
            LANES + lane if place % len(values) == number else at if number > 1 else lane
            for at, (place, lane) in enumerate(zip(places, lanes, strict=True))
        ]
        result = b.shuffle_vector(result, value, ir.Constant(VI, chosen))
    return result
