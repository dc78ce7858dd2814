"""The inner loops of a product of one row by a matrix, with several independent sums in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .first_lanes import HAVE_MASKS, store_first
from .vec import (
    F32,
    I32,
    I64,
    VF,
    WIDTH,
    Builder,
    Value,
    call,
    constant,
    emit_prefetch,
    fma,
    fold,
    isa_of,
    lanes_below,
    load,
    pointer,
    splat,
    store,
    vector,
)

#: Inputs that are multiplied by several blocks of columns in a turn of the loop: 2 ** n.
_TURN: Final = 4
#: Inputs of a sum of its own, which is added to those of the inputs before: one sum of 25088 has an error three times as large.
_PIECE: Final = 1024


def sum_packed(count: int, ahead: int = 0) -> Any:
    """Return the intrinsic that sums K products of 16 columns, ``count`` rows at a time.

    Once for each ``count`` rows, it asks for the weights ``ahead`` bytes behind those that it multiplies; 0 for none.

    Its arguments: the address of the left row and the distance of its inputs, the address of the first 16 weights and the
    distance of the next 16, in bytes, and K. It returns a vector.
    """

    @intrinsic
    def total(_: Any, left: Any, lane: Any, right: Any, step: Any, K: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return _sum_vectors(b, count, a, lambda address: load(b, address), ahead)

        return vector(*[types.int64] * 5), emit

    return total


def sum_blocks(count: int) -> Any:
    """Return the intrinsic that writes the sums of K products of ``count`` blocks of 16 packed columns.

    Its arguments: the address of the left row, whose inputs are adjacent, that of the first block and the distance of the next
    in bytes, K, and the address of the sums.
    """

    @intrinsic
    def total(_: Any, left: Any, right: Any, block: Any, K: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            left, right, block, K, to = a
            emit_blocks(b, (1, count), WIDTH, load, [left, I64(0), right, block, K, to, I64(0)])
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return total


def emit_blocks(
    b: Builder, shape: tuple[int, int], width: int, load_columns: Callable[[Builder, Value], Value], arguments: list[Value]
) -> None:  # fmt: skip
    """Emit the sums of products of some rows and blocks of 16 packed columns, `_TURN` inputs in a turn of the loop.

    ``shape`` says how many rows and blocks, ``load_columns`` reads 16 columns of ``width`` bytes. Each block is a stream of its
    own in memory, of which a processor reads several at the same time. The arguments: the address of the left rows and the
    distance from row to row, that of the first block and the distance of the next, K, the address of the sums and the distance
    from row to row, in bytes. Of more than `_PIECE` inputs, the sums of each piece are added to those of the pieces before.
    """
    rows, count = shape
    left, left_row, right, block, K, to, to_row = arguments
    lefts = [b.add(left, b.mul(left_row, I64(i))) for i in range(rows)]
    blocks = [b.add(right, b.mul(block, I64(j))) for j in range(count)]

    def add(k: Value, sums: Sequence[Value], inputs: int) -> list[Value]:
        found = list(sums)
        for number in range(inputs):
            input_ = b.add(k, I64(number))
            factors = [spread(b, b.add(row, b.mul(input_, I64(4)))) for row in lefts]
            for j, at in enumerate(blocks):
                columns = load_columns(b, b.add(at, b.mul(input_, I64(width))))
                for i, factor in enumerate(factors):
                    found[i * count + j] = fma(b, factor, columns, found[i * count + j])
        return found

    before, places = b.block, [b.add(b.mul(to_row, I64(i)), I64(WIDTH * j)) for i in range(rows) for j in range(count)]
    piece, further, stored, done = (b.append_basic_block(name) for name in ("piece", "further", "stored", "summed"))
    b.branch(piece)
    b.position_at_end(piece)
    begin = b.phi(I64)
    begin.add_incoming(I64(0), before)
    left_over = b.sub(K, begin)
    size = b.select(b.icmp_signed("<", left_over, I64(_PIECE)), left_over, I64(_PIECE))
    end, whole = b.add(begin, size), b.add(begin, b.and_(size, I64(-_TURN)))
    sums = carry(b, begin, whole, _TURN, [constant(0.0)] * (count * rows), lambda k, s: add(k, s, _TURN))
    first = carry(b, whole, end, 1, sums, lambda k, s: add(k, s, 1))
    summed = b.block
    b.cbranch(b.icmp_signed(">", begin, I64(0)), further, stored)
    b.position_at_end(further)
    added = [b.fadd(value, load(b, b.add(to, place))) for value, place in zip(first, places, strict=True)]
    b.branch(stored)
    b.position_at_end(stored)
    results = [b.phi(VF) for _ in places]
    for place, value, more, result in zip(places, first, added, results, strict=True):
        result.add_incoming(value, summed)
        result.add_incoming(more, further)
        store(b, b.add(to, place), result)
    begin.add_incoming(end, stored)
    b.cbranch(b.icmp_signed("<", end, K), piece, done)
    b.position_at_end(done)


def sum_part(count: int) -> Any:
    """Return the intrinsic of `sum_packed` for fewer columns, whose number is one more argument; others are not read."""

    @intrinsic
    def total(_: Any, left: Any, lane: Any, right: Any, step: Any, K: Any, columns: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            mask = lanes_below(b, a[5])
            return _sum_vectors(b, count, a[:5], lambda address: _masked(b, address, mask))

        return vector(*[types.int64] * 6), emit

    return total


def _sum_vectors(
    b: Builder, count: int, a: Sequence[Value], load_row: Callable[[Value], Value], ahead: int = 0
) -> Value:
    """Emit the sum of products of inputs and vectors of weights, ``count`` at a time; the arguments are `sum_packed`'s."""
    left, lane, right, step, K = a

    def add(k: Value, sums: Sequence[Value]) -> list[Value]:
        row, weights = b.add(left, b.mul(k, lane)), b.add(right, b.mul(k, step))
        if ahead and len(sums) > 1:
            # Of a page that has been begun, processors ask for lines themselves: to ask for each takes a quarter longer.
            emit_prefetch(b, b.add(weights, I64(ahead)), 3)
        found = []
        for number, value in enumerate(sums):
            factor = spread(b, b.add(row, b.mul(lane, I64(number))))
            found.append(fma(b, factor, load_row(b.add(weights, b.mul(step, I64(number)))), value))
        return found

    whole = b.mul(b.sdiv(K, I64(count)), I64(count))
    sums = carry(b, I64(0), whole, count, [constant(0.0)] * count, add)
    (first,) = carry(b, whole, K, 1, [sums[0]], add)
    sums = [first, *sums[1:]]
    while len(sums) > 1:
        sums = [b.fadd(x, y) for x, y in zip(sums[::2], sums[1::2], strict=True)]
    return sums[0]


def add_rows(count: int) -> Any:
    """Return the intrinsic that adds ``count`` rows of the matrix, each times an input, to sums in memory.

    Its arguments: the address of the first input and the distance of the next, the same of the rows, in bytes; the
    address of the sums, and how many there are. If all rows begin in the same place of a cache line, whole lines are read.
    """

    @intrinsic
    def add(_: Any, left: Any, lane: Any, right: Any, step: Any, to: Any, columns: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            left, lane, right, step, to, columns = a
            factors = [spread(b, b.add(left, b.mul(lane, I64(number)))) for number in range(count)]
            rows = [b.add(right, b.mul(step, I64(number))) for number in range(count)]

            def add_vector(j: Value, _: Sequence[Value]) -> list[Value]:
                place = b.mul(j, I64(4))
                value = load(b, b.add(to, place))
                for factor, row in zip(factors, rows, strict=True):
                    value = fma(b, factor, load(b, b.add(row, place)), value)
                store(b, b.add(to, place), value)
                return []

            def add_part(j: Value, columns: Value) -> None:
                place, mask = b.mul(j, I64(4)), lanes_below(b, columns)
                value = _masked(b, b.add(to, place), mask)
                for factor, row in zip(factors, rows, strict=True):
                    value = fma(b, factor, _masked(b, b.add(row, place), mask), value)
                if isa_of(b) not in HAVE_MASKS:
                    store_first(b, [b.add(to, place)], [value], columns)
                    return
                where = pointer(b, b.add(to, place), VF)
                call(b, "llvm.masked.store.v16f32.p0", value, where, I32(4), mask, result=ir.VoidType())

            # Columns before the first whole line.
            before = b.and_(b.lshr(b.neg(right), I64(2)), I64(15))
            aligned = b.icmp_signed("==", b.and_(step, I64(63)), I64(0))
            lead = b.select(aligned, before, I64(0))
            lead = b.select(b.icmp_signed("<", lead, columns), lead, columns)
            with b.if_then(b.icmp_signed(">", lead, I64(0))):
                add_part(I64(0), lead)
            end = b.add(lead, b.and_(b.sub(columns, lead), I64(-16)))
            carry(b, lead, end, WIDTH // 4, [], add_vector)
            with b.if_then(b.icmp_signed("<", end, columns)):
                add_part(end, b.sub(columns, end))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return add


def sum_rows(vectors: int) -> Any:
    """Return the intrinsic that writes the sums of K products of so many vectors of 16 columns, in rows of the matrix.

    Its arguments: the address of the left row and the distance of its inputs, the address of the first columns and the
    distance of the next row, in bytes, K, and the address of the sums.
    """

    @intrinsic
    def total(_: Any, left: Any, lane: Any, right: Any, step: Any, K: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            left, lane, right, step, K, to = a

            def add(k: Value, sums: Sequence[Value]) -> list[Value]:
                factor, row = spread(b, b.add(left, b.mul(k, lane))), b.add(right, b.mul(k, step))
                places = [b.add(row, I64(WIDTH * number)) for number in range(vectors)]
                return [fma(b, factor, load(b, at), value) for at, value in zip(places, sums, strict=True)]

            for number, value in enumerate(carry(b, I64(0), K, 1, [constant(0.0)] * vectors, add)):
                store(b, b.add(to, I64(WIDTH * number)), value)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return total


def sum_columns(count: int) -> Any:
    """Return the intrinsic that writes the sums of K products of ``count`` columns, whose elements are adjacent.

    Its arguments: addresses of the left row and of the first column, the distance of the next in bytes, K, and the address
    of the sums.
    """

    @intrinsic
    def total(_: Any, left: Any, right: Any, step: Any, K: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            left, right, step, K, to = a
            columns = [b.add(right, b.mul(step, I64(number))) for number in range(count)]

            def add(k: Value, sums: Sequence[Value]) -> list[Value]:
                place = b.mul(k, I64(4))
                row = load(b, b.add(left, place))
                return [fma(b, row, load(b, b.add(c, place)), s) for c, s in zip(columns, sums, strict=True)]

            whole = b.and_(K, I64(-16))
            sums = carry(b, I64(0), whole, WIDTH // 4, [constant(0.0)] * count, add)

            def add_rest(k: Value, sums: Sequence[Value]) -> list[Value]:
                place, mask = b.mul(k, I64(4)), lanes_below(b, b.sub(K, k))
                row = _masked(b, b.add(left, place), mask)
                return [fma(b, row, _masked(b, b.add(c, place), mask), s) for c, s in zip(columns, sums, strict=True)]

            sums = carry(b, whole, K, WIDTH // 4, sums, add_rest)
            for number, value in enumerate(sums):
                result = fold(b, value, lambda b, x, y: b.fadd(x, y))
                b.store(result, pointer(b, b.add(to, I64(4 * number)), F32), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return total


def carry(
    b: Builder, begin: Value, end: Value, by: int, values: Sequence[Value],
    body: Callable[[Value, Sequence[Value]], list[Value]],
) -> list[Value]:  # fmt: skip
    """Emit a loop that carries values, from ``begin`` while below ``end``; return them after the loop."""
    before = b.block
    head, inside, done = (b.append_basic_block(name) for name in ("head", "inside", "done"))
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(I64)
    index.add_incoming(begin, before)
    carried = []
    for value in values:
        phi = b.phi(VF)
        phi.add_incoming(value, before)
        carried.append(phi)
    b.cbranch(b.icmp_signed("<", index, end), inside, done)
    b.position_at_end(inside)
    new = body(index, carried)
    index.add_incoming(b.add(index, I64(by)), b.block)
    for phi, value in zip(carried, new, strict=True):
        phi.add_incoming(value, b.block)
    b.branch(head)
    b.position_at_end(done)
    return carried


def spread(b: Builder, address: Value) -> Value:
    """Load one float and return it in every lane."""
    return splat(b, b.load(pointer(b, address, F32), align=4))


def _masked(b: Builder, address: Value, mask: Value) -> Value:
    return call(b, "llvm.masked.load.v16f32.p0", pointer(b, address, VF), I32(4), mask, constant(0.0))
