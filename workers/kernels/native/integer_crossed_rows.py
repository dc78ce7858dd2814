"""The products of the numbers of each row among themselves, which `integer_crossed` adds once too often: less them sums begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_dot import multiply_groups, register_bits
from .integers import store_s32
from .vec import I32, I64, LANES, VI, WIDTH, Builder, Value, call, lanes_below, pointer


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of rows of numbers of 16 bits and of the results (s32), the bytes from row to row, and groups of four
    numbers of a row. One item of work is a row.
    """
    add_up = _make_sum(register_bits(isa))

    def squares(begin: int, end: int, rows: int, to: int, row: int, groups: int) -> None:
        for item in range(begin, end):
            store_s32(to + item * 4, -add_up(rows + item * row, groups * 2))

    return squares, types.void(*[types.int64] * 6)


def _make_sum(bits: int) -> Any:
    """Return the intrinsic that adds up the products of neighbouring pairs: address, pairs."""

    @intrinsic
    def add_up(_: Any, at: Any, pairs: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            at, pairs = a
            before = b.block
            zeros = ir.Constant(VI, [0] * LANES)
            whole, check, part, done = (b.append_basic_block(name) for name in ("whole", "check", "part", "done"))

            b.cbranch(b.icmp_signed(">=", pairs, I64(LANES)), whole, check)
            b.position_at_end(whole)
            looped = left, place, total = b.phi(I64), b.phi(I64), b.phi(VI)
            new = swapped_products(b, bits, total, b.load(pointer(b, place, VI), align=4))
            following = b.sub(left, I64(LANES)), b.add(place, I64(WIDTH)), new
            b.cbranch(b.icmp_signed(">=", following[0], I64(LANES)), whole, check)
            b.position_at_end(check)
            checked = left, place, total = b.phi(I64), b.phi(I64), b.phi(VI)
            for phis in (looped, checked):
                for phi, start, value in zip(phis, (pairs, at, zeros), following, strict=True):
                    phi.add_incoming(start, before)
                    phi.add_incoming(value, whole)
            b.cbranch(b.icmp_signed(">", left, I64(0)), part, done)

            b.position_at_end(part)
            mask = lanes_below(b, left)
            words = call(b, "llvm.masked.load.v16i32.p0", pointer(b, place, VI), I32(4), mask, zeros, result=VI)
            last = swapped_products(b, bits, total, words)
            b.branch(done)

            b.position_at_end(done)
            result = b.phi(VI)
            result.add_incoming(total, check)
            result.add_incoming(last, part)
            return total_once(b, result)

        return types.int64(types.int64, types.int64), emit

    return add_up


def swapped_products(b: Builder, bits: int, total: Value, words: Value) -> Value:
    """Return ``total`` plus the products of each pair of numbers of 16 bits and its neighbour: in both lanes the same."""
    others = b.shuffle_vector(words, words, ir.Constant(VI, [lane ^ 1 for lane in range(LANES)]))
    return multiply_groups(b, "pairs", bits, total, words, others)


def total_once(b: Builder, value: Value) -> Value:
    """Return the sum of every other lane, of neighbours that are the same."""
    half = ir.Constant(ir.VectorType(I32, LANES // 2), list(range(0, LANES, 2)))
    once = b.shuffle_vector(value, value, half)
    return b.sext(call(b, "llvm.vector.reduce.add.v8i32", once, result=I32), I64)
