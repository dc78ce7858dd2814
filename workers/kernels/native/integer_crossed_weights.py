"""Weights as `integer_crossed` reads them: 16 bits, and their own products, less which sums begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_dot import multiply_groups
from .vec import I8, I16, I32, I64, LANES, VI, WIDTH, Builder, Value, pointer

_WORDS = ir.VectorType(I16, 2 * LANES)
#: Returns the two vectors of pairs of a group of four inputs by its number.
_Read = Callable[[Value], list[Value]]


def make_widen(bits: int, kind: str, together: int) -> Any:
    """Return the intrinsic that widens a block of weights, and subtracts their own products from its terms.

    ``together`` is how many inputs of an output are neighbours, 2 or 4. Arguments: groups of four inputs, addresses of weights,
    of their copy in pairs, of the terms (s32) and of the new ones.
    """
    both = ir.VectorType(I8, 4 * LANES)

    @intrinsic
    def widen(_: Any, groups: Any, weights: Any, to: Any, terms: Any, to_terms: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            groups, weights, to, terms, to_terms = a

            def read(number: Value) -> list[Value]:
                value = b.load(pointer(b, b.add(weights, b.mul(number, I64(WIDTH))), both), align=4)
                pairs = []
                for half in range(2):
                    first, step = (2 * half, 4) if together == 4 else (2 * LANES * half, 2)
                    chosen = [first + step * lane + of for lane in range(LANES) for of in range(2)]
                    narrow = b.shuffle_vector(value, value, ir.Constant(ir.VectorType(I32, 2 * LANES), chosen))
                    pairs.append((b.sext if kind == "s8" else b.zext)(narrow, _WORDS))
                    place = b.add(to, b.add(b.mul(number, I64(2 * WIDTH)), I64(WIDTH * half)))
                    b.store(pairs[-1], pointer(b, place, _WORDS), align=64)
                return [b.bitcast(pair, VI) for pair in pairs]

            start = b.load(pointer(b, terms, VI), align=4)
            b.store(_less_products(b, bits, start, groups, read), pointer(b, to_terms, VI), align=64)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return widen


def make_subtract(bits: int, terms: bool = True) -> Any:
    """Return the intrinsic that subtracts the own products of a block, of 16 bits, from its ``terms``, or from zeros.

    Arguments: groups of four inputs; addresses of the block, of its terms (s32) and of the new ones.
    """

    @intrinsic
    def subtract(_: Any, groups: Any, weights: Any, old: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            groups, weights, old, to = a

            def read(number: Value) -> list[Value]:
                at = b.add(weights, b.mul(number, I64(2 * WIDTH)))
                return [b.load(pointer(b, b.add(at, I64(half)), VI), align=64) for half in (0, WIDTH)]

            start = b.load(pointer(b, old, VI), align=4) if terms else ir.Constant(VI, [0] * LANES)
            b.store(_less_products(b, bits, start, groups, read), pointer(b, to, VI), align=64)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), emit

    return subtract


def _less_products(b: Builder, bits: int, start: Value, groups: Value, read: _Read) -> Value:
    """Return ``start`` less the products of the pairs of each group."""
    before = b.block
    loop, done = b.append_basic_block("group"), b.append_basic_block("done")
    b.branch(loop)
    b.position_at_end(loop)
    number, total = b.phi(I64), b.phi(VI)
    new = multiply_groups(b, "pairs", bits, total, *read(number))
    following = b.add(number, I64(1))
    for phi, first, value in ((number, I64(0), following), (total, ir.Constant(VI, [0] * LANES), new)):
        phi.add_incoming(first, before)
        phi.add_incoming(value, loop)
    b.cbranch(b.icmp_signed("<", following, groups), loop, done)
    b.position_at_end(done)
    return b.sub(start, new)
