"""The register tiles of attention: a few keys (or columns of values) times vectors of 16 queries.

Scores and weights are stored with the queries side by side, so that the maximum and the sum over keys need no horizontal
step, and neither keys nor values are packed: a tile broadcasts single elements of them. Loops are not unrolled, as those of
`reduce_tile` are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .vec import (
    F32,
    I8,
    I32,
    I64,
    LANES,
    VF,
    VI,
    WIDTH,
    Builder,
    Value,
    call,
    constant,
    fma,
    lanes_below,
    load,
    pointer,
    splat,
    store,
)


def make_scores(size: int, blocks: int, added: bool) -> Any:
    """Return the intrinsic that multiplies ``size`` keys by ``blocks`` vectors of queries.

    Arguments: the address of the first key, bytes from key to key, the number of the last key (those behind it repeat it),
    the address of the queries (depth, blocks, 16), the depth, and where the scores (size, blocks, 16) are stored. With
    ``added``, they are added to what is there.
    """

    @intrinsic
    def scores(_: Any, key: Any, row: Any, last: Any, queries: Any, depth: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            key, row, last, queries, depth, to = a
            places = []
            for number in range(size):
                below = b.icmp_signed("<", I64(number), last)
                places.append(pointer(b, b.add(key, b.mul(row, b.select(below, I64(number), last))), I8))
            start = [constant(0.0)] * (size * blocks)

            def factors(index: Value) -> list[Value]:
                return [_float(b, place, b.shl(index, I64(2))) for place in places]

            for number, value in enumerate(_products(b, depth, queries, blocks, start, factors)):
                at = b.add(to, I64(WIDTH * number))
                store(b, at, b.fadd(value, load(b, at)) if added else value)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return scores


def make_means(size: int, blocks: int) -> Any:
    """Return the intrinsic that adds the weighted values of some keys to ``size`` columns of sums.

    Arguments: the address of the first value's first column, bytes from value to value, the address of the weights
    (count, blocks, 16), the count, at least 1, the address of the sums (size, blocks, 16), and that of (blocks, 16) factors
    by which they are multiplied before.
    """

    @intrinsic
    def means(_: Any, value: Any, row: Any, weights: Any, count: Any, to: Any, scales: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            value, row, weights, count, to, scales = a
            factor = [load(b, b.add(scales, I64(WIDTH * j))) for j in range(blocks)]
            places = [b.add(to, I64(WIDTH * number)) for number in range(size * blocks)]
            start = [b.fmul(load(b, at), factor[number % blocks]) for number, at in enumerate(places)]

            def factors(index: Value) -> list[Value]:
                line = pointer(b, b.add(value, b.mul(row, index)), I8)
                return [_float(b, line, I64(4 * number)) for number in range(size)]

            for at, total in zip(places, _products(b, count, weights, blocks, start, factors), strict=True):
                store(b, at, total)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return means


def make_dots(size: int) -> Any:
    """Return the intrinsic that multiplies one query by ``size`` keys, a power of two, and stores ``size`` floats.

    Arguments: the addresses of query and first key, bytes from key to key, the number of the last key (those behind it repeat
    it), the depth, and where the products are stored.
    """

    @intrinsic
    def dots(_: Any, query: Any, key: Any, row: Any, last: Any, depth: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            query, key, row, last, depth, to = a
            places = []
            for number in range(size):
                below = b.icmp_signed("<", I64(number), last)
                places.append(b.add(key, b.mul(row, b.select(below, I64(number), last))))
            before = b.block
            loop, done = (b.append_basic_block(name) for name in ("lane", "rest"))
            whole = b.and_(depth, I64(-LANES))
            b.cbranch(b.icmp_signed(">", whole, I64(0)), loop, done)
            b.position_at_end(loop)
            index = _phi(b, I64, I64(0), before)
            sums = [_phi(b, VF, constant(0.0), before) for _ in range(size)]
            offset = b.shl(index, I64(2))
            factor = load(b, b.add(query, offset))
            new = [fma(b, factor, load(b, b.add(p, offset)), s) for p, s in zip(places, sums, strict=True)]
            following = b.add(index, I64(LANES))
            for phi, value in zip((index, *sums), (following, *new), strict=True):
                phi.add_incoming(value, loop)
            b.cbranch(b.icmp_signed("<", following, whole), loop, done)
            b.position_at_end(done)
            totals = []
            for value in new:
                phi = _phi(b, VF, constant(0.0), before)
                phi.add_incoming(value, loop)
                totals.append(phi)
            mask, offset = lanes_below(b, b.sub(depth, whole)), b.shl(whole, I64(2))

            def rest(address: Value) -> Value:
                where = pointer(b, b.add(address, offset), VF)
                return call(b, "llvm.masked.load.v16f32.p0", where, I32(4), mask, constant(0.0))

            factor = rest(query)
            totals = [fma(b, factor, rest(place), total) for place, total in zip(places, totals, strict=True)]
            part = ir.VectorType(F32, size)
            b.store(_lane_sums(b, totals), pointer(b, to, part), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return dots


def _products(
    b: Builder, count: Value, rows: Value, blocks: int, start: list[Value], factors: Callable[[Value], list[Value]]
) -> list[Value]:
    """Add up factors times rows of vectors over ``count`` steps, at least one, and return the sums."""
    before = b.block
    loop, done = b.append_basic_block("lane"), b.append_basic_block("store")
    b.branch(loop)
    b.position_at_end(loop)
    index = _phi(b, I64, I64(0), before)
    sums = [_phi(b, VF, value, before) for value in start]
    line = b.add(rows, b.mul(index, I64(WIDTH * blocks)))
    row = [load(b, b.add(line, I64(WIDTH * j))) for j in range(blocks)]
    new: list[Value] = []
    for factor in factors(index):
        value = splat(b, factor)
        new += [fma(b, value, row[j], sums[len(new) + j]) for j in range(blocks)]
    following = b.add(index, I64(1))
    for phi, value in zip((index, *sums), (following, *new), strict=True):
        phi.add_incoming(value, loop)
    b.cbranch(b.icmp_signed("<", following, count), loop, done)
    b.position_at_end(done)
    return new


def _lane_sums(b: Builder, values: list[Value]) -> Value:
    """Return the sum of the lanes of each vector, in order, as a vector of as many lanes as there are vectors."""
    count, width = len(values), LANES
    order = [[number] for number in range(count)]
    while len(values) > 1:
        # Halves of two vectors' groups of lanes are added; the groups of the two take turns in the result.
        half, pairs = width // 2, len(values) // 2
        low, high = (
            [base + first + part + i for first in range(0, LANES, width) for base in (0, LANES) for i in range(half)]
            for part in (0, half)
        )
        values = [_add_lanes(b, values[i], values[i + pairs], low, high) for i in range(pairs)]
        order = [[x for both in zip(order[i], order[i + pairs], strict=True) for x in both] for i in range(pairs)]
        width = half
    (total,) = values
    while width > 1:
        width //= 2
        total = _add_lanes(b, total, total, list(range(LANES)), [lane ^ width for lane in range(LANES)])
    lanes = [order[0].index(number) * (LANES // count) for number in range(count)]
    return b.shuffle_vector(total, total, ir.Constant(ir.VectorType(I32, count), lanes))


def _add_lanes(b: Builder, x: Value, y: Value, low: list[int], high: list[int]) -> Value:
    return b.fadd(b.shuffle_vector(x, y, ir.Constant(VI, low)), b.shuffle_vector(x, y, ir.Constant(VI, high)))


def _float(b: Builder, base: Value, distance: Value) -> Value:
    return b.load(b.bitcast(b.gep(base, [distance]), F32.as_pointer()), align=4)


def _phi(b: Builder, kind: ir.Type, value: Value, block: Value) -> Value:
    phi = b.phi(kind)
    phi.add_incoming(value, block)
    return phi
