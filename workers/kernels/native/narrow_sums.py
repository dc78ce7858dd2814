"""The inner loops of a product of few rows of floats by a matrix of f16 or bf16, whose elements become floats in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...desc.data_type import item_size
from .compiler import types
from .compiler.language import intrinsic
from .elements import STORED, emit_load, masked_load, widened
from .gemv_sums import carry, emit_blocks, spread
from .vec import (
    F32,
    I64,
    LANES,
    Builder,
    Value,
    constant,
    emit_prefetch,
    fma,
    fold,
    lanes_below,
    load,
    pointer,
    store,
)

#: Bytes of packed columns that are asked for before they are read: a processor by itself asks for fewer than memory needs
#: time for, since it stops at each page and the sums of an element take several cycles.
_AHEAD: Final = 8192


def sum_packed(heights: Sequence[int], sums_at_once: int, dtype: str) -> Any:
    """Return the intrinsic that writes the sums of K products of 16 columns for each row of a tile.

    A tile has one of the ``heights``; several inputs are summed apart if so few rows have fewer sums than ``sums_at_once``.
    Its arguments: rows; the address of the left rows and the distance from row to row, the address of the first 16 weights,
    K, the address of the sums and the distance from row to row, in bytes.
    """

    @intrinsic
    def total(_: Any, rows: Any, left: Any, left_row: Any, right: Any, K: Any, to: Any, to_row: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            done = b.append_basic_block("computed")
            places = {height: b.append_basic_block("tile") for height in heights}
            # A number of no tile takes the last one's place.
            chosen = b.switch(a[0], list(places.values())[-1])
            for height, place in places.items():
                chosen.add_case(I64(height), place)
                b.position_at_end(place)
                _emit_tile(b, height, max(1, sums_at_once // height), dtype, a[1:])
                b.branch(done)
            b.position_at_end(done)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), emit

    return total


def sum_blocks(heights: Sequence[int], sums_at_once: int, dtype: str) -> Any:
    """Return the intrinsic that writes the sums of K products of several blocks of 16 packed columns, for each row of a tile.

    A tile of n rows has ``sums_at_once`` // n blocks. Its arguments: rows, and those of `emit_blocks`.
    """
    width = LANES * item_size(dtype)

    @intrinsic
    def total(_: Any, rows: Any, left: Any, left_row: Any, right: Any, block: Any, K: Any, to: Any, to_row: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            done = b.append_basic_block("computed")
            places = {height: b.append_basic_block("tile") for height in heights}
            # A number of no tile takes the last one's place.
            chosen = b.switch(a[0], list(places.values())[-1])
            for height, place in places.items():
                chosen.add_case(I64(height), place)
                b.position_at_end(place)
                emit_blocks(b, (height, sums_at_once // height), width, lambda b, at: emit_load(b, at, dtype), a[1:])
                b.branch(done)
            b.position_at_end(done)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), emit

    return total


def _emit_tile(b: Builder, rows: int, count: int, dtype: str, arguments: list[Value]) -> None:
    """Emit the sums of a tile, ``count`` inputs at a time."""
    left, left_row, right, K, to, to_row = arguments
    lefts = [b.add(left, b.mul(left_row, I64(i))) for i in range(rows)]

    def add(k: Value, sums: Sequence[Value], inputs: int) -> list[Value]:
        found = list(sums)
        for number in range(inputs):
            at = b.add(right, b.mul(b.add(k, I64(number)), I64(LANES * item_size(dtype))))
            if number % (64 // (LANES * item_size(dtype))) == 0:
                emit_prefetch(b, b.add(at, I64(_AHEAD)), 2)
            factor, place = emit_load(b, at, dtype), b.mul(b.add(k, I64(number)), I64(4))
            for i, row in enumerate(lefts):
                index = i * count + number
                found[index] = fma(b, spread(b, b.add(row, place)), factor, found[index])
        return found

    whole = b.mul(b.sdiv(K, I64(count)), I64(count))
    sums = carry(b, I64(0), whole, count, [constant(0.0)] * (count * rows), lambda k, s: add(k, s, count))
    if count > 1:
        sums = carry(b, whole, K, 1, sums, lambda k, s: add(k, s, 1))
    for i in range(rows):
        own = sums[i * count : (i + 1) * count]
        while len(own) > 1:
            own = [b.fadd(x, y) for x, y in zip(own[::2], own[1::2], strict=False)] + own[len(own) // 2 * 2 :]
        store(b, b.add(to, b.mul(to_row, I64(i))), own[0])


def add_rows(count: int, dtype: str) -> Any:
    """Return the intrinsic that adds ``count`` rows of the matrix, each times an input, to sums in memory.

    Its arguments: the address of the first input, that of the first row and the distance of the next in bytes; the
    address of the sums, and how many there are. Room for sums up to a multiple of 16 is written, too.
    """
    size = item_size(dtype)

    @intrinsic
    def add(_: Any, left: Any, right: Any, step: Any, to: Any, columns: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            left, right, step, to, columns = a
            factors = [spread(b, b.add(left, I64(4 * number))) for number in range(count)]
            rows = [b.add(right, b.mul(step, I64(number))) for number in range(count)]

            def add_vector(j: Value, _: Sequence[Value]) -> list[Value]:
                at = b.add(to, b.mul(j, I64(4)))
                value = load(b, at)
                for factor, row in zip(factors, rows, strict=True):
                    value = fma(b, factor, emit_load(b, b.add(row, b.mul(j, I64(size))), dtype), value)
                store(b, at, value)
                return []

            whole = b.and_(columns, I64(-LANES))
            carry(b, I64(0), whole, LANES, [], add_vector)
            with b.if_then(b.icmp_signed("<", whole, columns)):
                mask, at = lanes_below(b, b.sub(columns, whole)), b.add(to, b.mul(whole, I64(4)))
                value = load(b, at)
                for factor, row in zip(factors, rows, strict=True):
                    value = fma(b, factor, _part(b, b.add(row, b.mul(whole, I64(size))), mask, dtype), value)
                store(b, at, value)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return add


def sum_columns(count: int, dtype: str) -> Any:
    """Return the intrinsic that writes the sums of K products of ``count`` columns, whose elements are adjacent.

    Its arguments: addresses of the left row and of the first column, the distance of the next in bytes, K, and the address
    of the sums.
    """
    size = item_size(dtype)

    @intrinsic
    def total(_: Any, left: Any, right: Any, step: Any, K: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            left, right, step, K, to = a
            columns = [b.add(right, b.mul(step, I64(number))) for number in range(count)]

            def add(k: Value, sums: Sequence[Value]) -> list[Value]:
                row, place = load(b, b.add(left, b.mul(k, I64(4)))), b.mul(k, I64(size))
                loaded = [emit_load(b, b.add(column, place), dtype) for column in columns]
                return [fma(b, row, factor, value) for factor, value in zip(loaded, sums, strict=True)]

            def add_rest(k: Value, sums: Sequence[Value]) -> list[Value]:
                mask, place = lanes_below(b, b.sub(K, k)), b.mul(k, I64(size))
                row = _part(b, b.add(left, b.mul(k, I64(4))), mask, "f32")
                loaded = [_part(b, b.add(column, place), mask, dtype) for column in columns]
                return [fma(b, row, factor, value) for factor, value in zip(loaded, sums, strict=True)]

            whole = b.and_(K, I64(-LANES))
            sums = carry(b, I64(0), whole, LANES, [constant(0.0)] * count, add)
            sums = carry(b, whole, K, LANES, sums, add_rest)
            for number, value in enumerate(sums):
                result = fold(b, value, lambda b, x, y: b.fadd(x, y))
                b.store(result, pointer(b, b.add(to, I64(4 * number)), F32), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return total


def _part(b: Builder, address: Value, mask: Value, dtype: str) -> Value:
    """Return the elements of a mask as floats, zeros in the other lanes."""
    return widened(b, masked_load(b, address, STORED[dtype], mask), dtype)
