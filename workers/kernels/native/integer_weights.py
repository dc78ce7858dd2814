"""Pack weights of an integer product that are given as a matrix: groups along K of 16 outputs side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_dot import GROUP
from .vec import I8, LANES, Builder, Value, pointer


def make(isa: str, how: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of weights and of the packed ones; K and outputs; the distances in bytes from number to number along
    K and from output to output. One item of work is a block of 16 outputs.
    """
    size = GROUP[how]
    interleave = _make_interleave(size)
    move1, zero1 = _make_byte(True), _make_byte(False)

    def pack_block(
        weights: int, packed: int, item: int, first_group: int, groups: int, K: int, outputs: int, step: int, across: int
    ) -> None:  # fmt: skip
        """Pack the groups of a block from ``first_group`` on."""
        lanes = min(16, outputs - item * 16)
        source = weights + item * 16 * across
        to = packed + (item * groups + first_group) * 16 * size
        for group in range(first_group, groups):
            first = group * size
            if across == 1 and lanes == 16 and first + size <= K:
                interleave(to, source + first * step, step)
            else:
                for lane in range(16):
                    for n in range(size):
                        at = to + lane * size + n
                        if lane < lanes and first + n < K:
                            move1(at, source + lane * across + (first + n) * step)
                        else:
                            zero1(at, 0)
            to += 16 * size

    def pack(
        begin: int, end: int, weights: int, packed: int, K: int, outputs: int, step: int, across: int
    ) -> None:  # fmt: skip
        groups = (K + size - 1) // size
        block = groups * 16 * size
        whole = K // size if across == 1 else 0
        item = begin
        # Four blocks at once: a line of the cache has a row of each.
        while item + 4 <= end and item * 16 + 64 <= outputs:
            source, to = weights + item * 16, packed + item * block
            for _ in range(whole):
                interleave(to, source, step)
                interleave(to + block, source + 16, step)
                interleave(to + 2 * block, source + 32, step)
                interleave(to + 3 * block, source + 48, step)
                source += size * step
                to += 16 * size
            for number in range(4):
                pack_block(weights, packed, item + number, whole, groups, K, outputs, step, across)
            item += 4
        while item < end:
            pack_block(weights, packed, item, 0, groups, K, outputs, step, across)
            item += 1

    return pack, types.void(*[types.int64] * 8)


def interleave_rows(b: Builder, rows: list[Value]) -> Value:
    """Return rows of 16 bytes, as many as a power of two, with the bytes of one place side by side."""
    while len(rows) > 1:
        width = rows[0].type.count // LANES
        order = [
            source * LANES * width + lane * width + n
            for lane in range(LANES)
            for source in (0, 1)
            for n in range(width)
        ]
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order)
        rows = [b.shuffle_vector(low, high, mask) for low, high in zip(rows[::2], rows[1::2], strict=True)]
    return rows[0]


def _make_interleave(size: int) -> Any:
    """Return the intrinsic that interleaves ``size`` rows of 16 bytes: address of the group, of the rows, their distance."""

    @intrinsic
    def interleave(_: Any, to: Any, at: Any, step: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            kind = ir.VectorType(I8, LANES)
            rows = [b.load(pointer(b, b.add(a[1], b.mul(a[2], ir.IntType(64)(n))), kind), align=1) for n in range(size)]
            value = interleave_rows(b, rows)
            b.store(value, pointer(b, a[0], value.type), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), emit

    return interleave


def _make_byte(copies: bool) -> Any:
    """Return the intrinsic that copies one byte, or sets it to 0: address, address of the byte."""

    @intrinsic
    def move(_: Any, to: Any, at: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            value = b.load(pointer(b, a[1], I8), align=1) if copies else I8(0)
            b.store(value, pointer(b, a[0], I8), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return move
