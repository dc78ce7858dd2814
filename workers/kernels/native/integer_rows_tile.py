"""The register tile of products of few rows by bytes in rows: groups along K are interleaved in registers, not in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import llvmlite.ir as ir

from poolrt.cachestore.deferred_dataclass import dataclass, replace

from .compiler import types
from .compiler.language import intrinsic
from .integer_dot import GROUP, ONES, multiply_groups, register_bits
from .integer_tile import IntegerTile, TileArguments, emit_stores
from .integer_weights import interleave_rows
from .vec import I8, I16, I32, I64, LANES, VI, WIDTH, Builder, Value, pointer, splat

#: Columns that are interleaved together, by how groups are multiplied: with ``vnni``, four rows of a register each.
UNIT: Final = {"vnni": 64, "pairs": 16}


@dataclass(frozen=True, slots=True)
class RowsTile:
    """The parameters compiled into a tile.

    ``how`` says how groups are multiplied, ``units`` how many `UNIT` of columns a tile has. ``signed`` is src, ``kind``,
    ``dtype`` and ``residual`` ("": nothing) are data types of weights, dst and of what is added. ``exact`` sums are stored
    as they are; others are scaled. ``terms`` if sums begin with some. With ``counts``, sums get a multiple of the weights of
    each column unless that is 0; the tile adds up those. ``points`` if columns of weights have zero points. ``carries`` if the
    tile adds to sums in memory, and writes results only if its groups are the last ones.
    """

    isa: str
    how: str
    positions: int
    units: int
    signed: bool
    kind: str
    dtype: str
    residual: str
    exact: bool
    terms: bool
    counts: bool
    points: bool
    carries: bool

    @property
    def flips(self) -> bool:
        """Whether weights are shifted by 128, since src has the same sign."""
        return self.how == "vnni" and self.signed == (self.kind == "s8")

    @property
    def blocks(self) -> int:
        """Vectors of 16 columns."""
        return self.units * UNIT[self.how] // LANES


class RowsArguments(NamedTuple):
    """Arguments of a tile: addresses, distances in bytes, counts, and numbers of the epilogue."""

    whole: Value  #: groups that are read where they are
    left: Value
    left_row: Value
    right: Value
    right_row: Value
    rest: Value  #: groups that follow, of copies
    rest_left: Value
    rest_left_row: Value
    rest_right: Value
    rest_right_row: Value
    sums: Value  #: of the groups before these
    last: Value  #: 1 if no groups follow, else 0
    minus: Value  #: what is subtracted for each weight of a column
    more: Value  #: added to the sum of a column's weights
    row_terms: Value  #: s32, one a row, if weights are shifted
    row_sums: Value  #: s32, one a row, of numbers less their zero point, if columns have zero points
    column_points: Value  #: s32, one a column
    rows: Value
    dst: Value
    dst_row: Value
    terms: Value
    factor: Value
    offset: Value
    count: Value  #: columns from the first of the tile
    residual: Value
    residual_row: Value
    weight: Value
    lower: Value
    upper: Value
    point: Value


def make_rows_tile(shape: RowsTile) -> Any:
    """Return the intrinsic that computes one tile; its arguments are those of `RowsArguments`, in order."""

    @intrinsic
    def tile(
        _: Any, whole: Any, left: Any, left_row: Any, right: Any, right_row: Any, rest: Any, rest_left: Any,
        rest_left_row: Any, rest_right: Any, rest_right_row: Any, sums: Any, last: Any, minus: Any, more: Any,
        row_terms: Any, row_sums: Any, column_points: Any, rows: Any, dst: Any, dst_row: Any, terms: Any, factor: Any,
        offset: Any, count: Any, residual: Any, residual_row: Any, weight: Any, lower: Any, upper: Any, point: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            arguments = RowsArguments(*a)
            if not shape.counts:
                _emit_tile(b, shape, arguments)
                return context.get_dummy_value()
            with b.if_else(b.icmp_signed("!=", arguments.minus, I64(0))) as (counting, plain):
                with counting:
                    _emit_tile(b, shape, arguments)
                with plain:
                    _emit_tile(b, replace(shape, counts=False), arguments)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 26, types.float32, types.float32, types.float32, types.int64), emit

    return tile


def _emit_tile(b: Builder, shape: RowsTile, a: RowsArguments) -> None:
    sums = _emit_sums(b, shape, a)
    if not shape.carries:
        _emit_results(b, shape, a, sums)
        return
    with b.if_else(b.icmp_signed("!=", a.last, I64(0))) as (ends, continues):
        with ends:
            _emit_results(b, shape, a, sums)
        with continues:
            for place, value in zip(_places(b, a.sums, len(sums)), sums, strict=True):
                b.store(value, place, align=16)


def _places(b: Builder, address: Value, count: int) -> list[Value]:
    return [pointer(b, b.add(address, I64(WIDTH * n)), VI) for n in range(count)]


def _emit_sums(b: Builder, shape: RowsTile, a: RowsArguments) -> list[Value]:
    """Return the sums, position by position, and with counts those of weights behind them; columns as they are read."""
    last = b.sub(a.rows, I64(1))
    numbers = []
    for i in range(shape.positions):
        # Rows that there are not repeat the last one; their sums are not stored.
        number = I64(i)
        numbers.append(b.select(b.icmp_signed("<", number, a.rows), number, last) if i else number)
    number_of_sums = (shape.positions + shape.counts) * shape.blocks
    sums = [ir.Constant(VI, [0] * LANES)] * number_of_sums
    if shape.carries:
        sums = [b.load(place, align=16) for place in _places(b, a.sums, number_of_sums)]
    for count, left, left_row, right, right_row in (
        (a.whole, a.left, a.left_row, a.right, a.right_row),
        (a.rest, a.rest_left, a.rest_left_row, a.rest_right, a.rest_right_row),
    ):
        lefts = [b.add(left, b.mul(number, left_row)) for number in numbers]
        sums = _loop(b, count, sums, _adder(b, shape, lefts, right, right_row))
    return sums


def _adder(
    b: Builder, shape: RowsTile, lefts: Sequence[Value], right: Value, right_row: Value
) -> Callable[[Value, Sequence[Value]], list[Value]]:
    """Return the function that adds one group to sums."""
    bits = register_bits(shape.isa)
    size = GROUP[shape.how]
    ones = ir.Constant(VI, [ONES[shape.how]] * LANES)
    # Of registers of 256 bits there are 16: sums take 8, and no more weights are loaded than are multiplied at once.
    every = range(shape.units)
    parts = [every] if bits == 512 else [range(unit, unit + 1) for unit in every]

    def multiply(total: Value, word: Value, factor: Value, weights_signed: bool) -> Value:
        first, second = (word, factor) if weights_signed or shape.how == "pairs" else (factor, word)
        return multiply_groups(b, shape.how, bits, total, first, second)

    def add(group: Value, sums: Sequence[Value]) -> list[Value]:
        row = b.add(right, b.mul(group, b.mul(right_row, I64(size))))
        rows = [b.add(row, b.mul(right_row, I64(n))) for n in range(size)]
        place = b.mul(group, I64(4))
        words: list[Value] = []
        found = list(sums)
        for units in parts:
            factors: list[Value] = []
            for unit in units:
                factors += _interleaved(b, shape, [b.add(each, I64(UNIT[shape.how] * unit)) for each in rows])
            if not words:
                words += [splat(b, b.load(pointer(b, b.add(left, place), I32), align=1)) for left in lefts]
                words += [ones] * shape.counts
            first = units[0] * len(factors) // len(units)
            for i, word in enumerate(words):
                for j, factor in enumerate(factors, i * shape.blocks + first):
                    found[j] = multiply(found[j], word, factor, not shape.signed)
        return found

    return add


def _interleaved(b: Builder, shape: RowsTile, rows: list[Value]) -> list[Value]:
    """Return the groups of a unit of columns.

    With ``vnni`` these are four vectors: of each 16 columns, vector j has those from 4 j on, so that no byte leaves its part
    of a register.
    """
    if shape.how == "pairs":
        kind = ir.VectorType(I8, LANES)
        low, high = (b.load(pointer(b, row, kind), align=1) for row in rows)
        widen = b.sext if shape.kind == "s8" else b.zext
        if register_bits(shape.isa) == 512:
            return [b.bitcast(widen(interleave_rows(b, [low, high]), ir.VectorType(I16, 2 * LANES)), VI)]
        # Half of the columns at a time, which no instruction moves from one half of a register to the other.
        halves = []
        for first in range(0, LANES, LANES // 2):
            order = [source * LANES + first + n for n in range(LANES // 2) for source in (0, 1)]
            half = b.shuffle_vector(low, high, ir.Constant(VI, order))
            halves.append(b.bitcast(widen(half, ir.VectorType(I16, LANES)), ir.VectorType(I32, LANES // 2)))
        return [b.shuffle_vector(*halves, ir.Constant(VI, list(range(LANES))))]
    kind = ir.VectorType(I8, WIDTH)
    loaded = [b.load(pointer(b, row, kind), align=1) for row in rows]
    if shape.flips:
        loaded = [b.xor(value, ir.Constant(kind, [128] * WIDTH)) for value in loaded]
    words = ir.VectorType(I16, WIDTH // 2)
    pairs = [[b.bitcast(each, words) for each in _halves(b, *loaded[n : n + 2])] for n in (0, 2)]
    return [b.bitcast(each, VI) for low, high in zip(*pairs, strict=True) for each in _halves(b, low, high)]


def _halves(b: Builder, low: Value, high: Value) -> list[Value]:
    """Interleave two vectors in each part of 16 bytes: first the lower half of each part, then the upper one."""
    count = low.type.count
    part = count // 4
    found = []
    for start in (0, part // 2):
        order = [
            source * count + first + start + n
            for first in range(0, count, part)
            for n in range(part // 2)
            for source in (0, 1)
        ]
        found.append(b.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, count), order)))
    return found


def _emit_results(b: Builder, shape: RowsTile, a: RowsArguments, sums: list[Value]) -> None:
    """Store sums in the order of columns, less what the zero point of src takes away."""
    blocks = shape.blocks
    if shape.how == "vnni":
        sums = [each for n in range(0, len(sums), 4) for each in _sorted(b, sums[n : n + 4])]
    begins = [ir.Constant(VI, [0] * LANES)] * blocks
    if shape.terms:
        begins = [b.load(pointer(b, b.add(a.terms, I64(WIDTH * j)), VI), align=4) for j in range(blocks)]
    if shape.counts:
        minus, more = (splat(b, b.trunc(each, I32)) for each in (a.minus, a.more))
        counts = sums[shape.positions * blocks :]
        begins = [b.sub(begin, b.mul(minus, b.add(count, more))) for begin, count in zip(begins, counts, strict=True)]
    points = []
    if shape.points:
        points = [b.load(pointer(b, b.add(a.column_points, I64(WIDTH * j)), VI), align=4) for j in range(blocks)]
    store = IntegerTile(
        shape.how, register_bits(shape.isa), (1,), blocks, shape.dtype, shape.residual, shape.exact, True, shape.kind
    )
    none = I64(0)
    for i in range(shape.positions):
        with b.if_then(b.icmp_signed(">", a.rows, I64(i))):
            row = [
                b.add(value, begin) for value, begin in zip(sums[i * blocks : (i + 1) * blocks], begins, strict=True)
            ]
            if shape.flips:
                term = _same(b, a.row_terms, i)
                row = [b.add(value, term) for value in row]
            if shape.points:
                total = _same(b, a.row_sums, i)
                row = [b.sub(value, b.mul(total, each)) for value, each in zip(row, points, strict=True)]
            to, beside = (
                b.add(at, b.mul(step, I64(i))) for at, step in ((a.dst, a.dst_row), (a.residual, a.residual_row))
            )
            arguments = TileArguments(
                none, none, none, none, none, none, none, none, to, none, a.terms, a.factor, a.offset, a.count, beside,
                none, a.weight, a.lower, a.upper, a.point, none,
            )  # fmt: skip
            emit_stores(b, store, arguments, row)


def _same(b: Builder, numbers: Value, index: int) -> Value:
    """Return a vector with one of s32 numbers in each lane."""
    return splat(b, b.load(pointer(b, b.add(numbers, I64(4 * index)), I32), align=4))


def _sorted(b: Builder, parts: list[Value]) -> list[Value]:
    """Return four vectors of a unit in the order of its columns."""
    wide = ir.VectorType(I32, 2 * LANES)
    first, second = (
        b.shuffle_vector(low, high, ir.Constant(wide, list(range(2 * LANES)))) for low, high in (parts[:2], parts[2:])
    )
    found = []
    for part in range(4):
        # Vector j has columns 4 j to 4 j + 3 of part p in its lanes from 4 p on.
        order = [16 * j + 4 * part + n for j in range(4) for n in range(4)]
        found.append(b.shuffle_vector(first, second, ir.Constant(VI, order)))
    return found


def _loop(
    b: Builder, count: Value, values: Sequence[Value], body: Callable[[Value, Sequence[Value]], list[Value]]
) -> list[Value]:
    """Emit a loop of ``count`` rounds that carries vectors; return them after it."""
    before = b.block
    inside, done = (b.append_basic_block(name) for name in ("group", "done"))
    b.cbranch(b.icmp_signed(">", count, I64(0)), inside, done)
    b.position_at_end(inside)
    number = b.phi(I64)
    number.add_incoming(I64(0), before)
    carried = [b.phi(VI) for _ in values]
    for phi, value in zip(carried, values, strict=True):
        phi.add_incoming(value, before)
    new = body(number, carried)
    following = b.add(number, I64(1))
    number.add_incoming(following, b.block)
    for phi, value in zip(carried, new, strict=True):
        phi.add_incoming(value, b.block)
    end = b.block
    b.cbranch(b.icmp_signed("<", following, count), inside, done)
    b.position_at_end(done)
    found = []
    for start, value in zip(values, new, strict=True):
        phi = b.phi(VI)
        phi.add_incoming(start, before)
        phi.add_incoming(value, end)
        found.append(phi)
    return found
