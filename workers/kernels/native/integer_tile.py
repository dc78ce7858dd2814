"""The register tile of integer convolutions and products: positions times blocks of 16 outputs, requantized in registers.

A tile accumulates ``T`` steps of exact s32 sums. Step t reads neighbouring groups of 8-bit numbers at every position; a
table of (source offset, groups) says which. Weights are packed: the group of 16 outputs is one load. The inner loop is
not unrolled, as that of `reduce_tile`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import llvmlite.ir as ir

from poolrt.cachestore.deferred_dataclass import dataclass

from .compiler import types
from .compiler.language import intrinsic
from .first_lanes import store_first
from .integer_dot import GROUP, ONES, multiply_groups
from .vec import (
    F32,
    I1,
    I8,
    I16,
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
    emit_prefetch,
    fma,
    lanes_below,
    maximum,
    minimum,
    pointer,
    splat,
)  # fmt: skip

#: Bytes of an element by data type.
SIZES: Final = {"u8": 1, "s8": 1, "u16": 2, "s16": 2, "s32": 4, "f32": 4}
#: Added to a float32 below 2**22 in magnitude, it leaves the integer nearest to it, ties to even, in the low bits.
_ROUND: Final = 12582912.0
#: The largest float32 that an int32 holds.
_MOST: Final = 2147483520.0
#: Bits of registers of which two vectors of results are packed together, and LLVM's intrinsics that saturate 16 bits to bytes.
PAIRED: Final = 256
_PACKS: Final = {"u8": "llvm.x86.avx2.packuswb", "s8": "llvm.x86.avx2.packsswb"}
#: Bits of registers of which lanes are stored by a mask as fast as all.
_HAS_MASKS: Final = 512
_V8: Final = ir.VectorType(I8, LANES)


@dataclass(frozen=True, slots=True)
class IntegerTile:
    """The parameters compiled into a tile.

    ``how`` and ``bits`` say how groups are multiplied, ``runs`` are lengths of runs of neighbouring positions. ``dtype``
    and ``residual`` are the data types of dst and of what is added ("": nothing). ``exact`` sums are stored as they are;
    others are scaled. ``part`` if the lanes behind the last output must not be stored. ``kind`` is the data type of
    weights, ``s16`` of bytes that were widened when they were packed. With ``counts``, the tile adds up the weights of each
    output, and sums get a multiple of that. With ``straddles``, the first outputs of a tile may be others', too, and are not
    stored. The outputs of a block belong to ``parts`` groups, whose sources are ``apart`` bytes from each other.
    """

    how: str
    bits: int
    runs: tuple[int, ...]
    blocks: int
    dtype: str
    residual: str
    exact: bool
    part: bool
    kind: str
    counts: bool = False
    straddles: bool = False
    parts: int = 1
    apart: int = 0


class TileArguments(NamedTuple):
    """Arguments of a tile: addresses; distances in bytes; counts in items; numbers of the epilogue."""

    T: Value
    steps: Value  #: the table of steps
    src: Value
    run: Value  #: from run to run in the source
    step: Value  #: from position to position in the source
    weights: Value
    weight_block: Value
    ahead: Value  #: from weights to those that are asked for meanwhile; 0 for none
    dst: Value
    dst_step: Value  #: from position to position
    terms: Value  #: s32 that sums begin with, one an output
    factor: Value  #: f32, one an output
    offset: Value  #: f32, one an output
    count: Value  #: outputs from the first of the tile
    residual: Value
    residual_step: Value  #: from position to position
    weight: Value  #: what the residual is multiplied by
    lower: Value
    upper: Value
    point: Value  #: added to results of bytes after they are rounded
    minus: Value  #: what is subtracted for each weight of an output, if the tile adds these up
    first: Value | None = None  #: outputs that are not stored, from the first of the tile, if it straddles groups


def make_integer_tile(shape: IntegerTile) -> Any:
    """Return the intrinsic that computes one tile; its arguments are those of `TileArguments`, in order."""

    @intrinsic
    def tile(
        _: Any, T: Any, steps: Any, src: Any, run: Any, step: Any, weights: Any, weight_block: Any, ahead: Any,
        dst: Any, dst_step: Any, terms: Any, factor: Any, offset: Any, count: Any, residual: Any, residual_step: Any,
        weight: Any, lower: Any, upper: Any, point: Any, minus: Any, first: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            arguments = TileArguments(*a)
            emit_stores(b, shape, arguments, emit_sums(b, shape, arguments))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 16, types.float32, types.float32, types.float32, *[types.int64] * 3), emit

    return tile


def emit_sums(b: Builder, shape: IntegerTile, a: TileArguments, rows: Sequence[Value] = ()) -> list[Value]:
    """Return the sums, position by position, the blocks of one position side by side.

    Those of a position begin with its vector of ``rows``, too, if there are any.
    """
    blocks = range(shape.blocks)
    row_bytes = WIDTH if shape.kind == "s16" else LANES * GROUP[shape.how]
    start = [b.load(pointer(b, b.add(a.terms, I64(WIDTH * j)), VI), align=4) for j in blocks]
    starts = [b.add(value, row) for row in rows for value in start] or start * sum(shape.runs)
    before = b.block
    outer, inner, latch, done = (b.append_basic_block(name) for name in ("step", "group", "next", "store"))
    b.branch(outer)

    b.position_at_end(outer)
    t = _phi(b, I64, I64(0), before)
    first_row = _phi(b, I64, a.weights, before)
    carried = [_phi(b, VI, value, before) for value in starts]
    zero = ir.Constant(VI, [0] * LANES)
    carried += [_phi(b, VI, zero, before) for _ in blocks if shape.counts]
    entry = b.add(a.steps, b.mul(t, I64(16)))
    offset, groups = (b.load(pointer(b, b.add(entry, I64(8 * i)), I64), align=8) for i in range(2))
    begin = b.add(a.src, offset)
    b.branch(inner)

    b.position_at_end(inner)
    left = _phi(b, I64, groups, outer)
    row = _phi(b, I64, first_row, outer)
    source = _phi(b, I64, begin, outer)
    sums = [_phi(b, VI, value, outer) for value in carried]
    emit_prefetch(b, b.add(row, a.ahead), 2)
    factors = [_weights(b, shape, b.add(row, b.mul(a.weight_block, I64(j)))) for j in blocks]
    new: list[Value] = []
    for index, length in enumerate(shape.runs):
        base = pointer(b, b.add(source, b.mul(a.run, I64(index))) if index else source, I8)
        for position in range(length):
            at = b.gep(base, [b.mul(a.step, I64(position))])
            word = _word(b, shape, at)
            new += [multiply_groups(b, shape.how, shape.bits, sums[len(new) + j], word, factors[j]) for j in blocks]
    if shape.counts:
        ones = ir.Constant(VI, [ONES[shape.how]] * LANES)
        new += [multiply_groups(b, shape.how, shape.bits, sums[len(new) + j], ones, factors[j]) for j in blocks]
    left_next, row_next, source_next = b.sub(left, I64(1)), b.add(row, I64(row_bytes)), b.add(source, I64(4))
    for phi, value in zip((left, row, source, *sums), (left_next, row_next, source_next, *new), strict=True):
        phi.add_incoming(value, inner)
    b.cbranch(b.icmp_signed(">", left_next, I64(0)), inner, latch)

    b.position_at_end(latch)
    t_next = b.add(t, I64(1))
    for phi, value in zip((t, first_row, *carried), (t_next, row_next, *new), strict=True):
        phi.add_incoming(value, latch)
    b.cbranch(b.icmp_signed("<", t_next, a.T), outer, done)
    b.position_at_end(done)
    if shape.counts:
        minus = splat(b, b.trunc(a.minus, I32))
        less = [b.mul(minus, value) for value in new[-shape.blocks :]]
        new = [b.sub(value, less[number % shape.blocks]) for number, value in enumerate(new[: -shape.blocks])]
    return new


def _word(b: Builder, shape: IntegerTile, at: Value) -> Value:
    """Return a group of numbers of a position in each lane: that of the output's own group."""
    if shape.parts > 1 and shape.apart == I32.width // 8:
        kind = ir.VectorType(I32, shape.parts)
        words = b.load(b.bitcast(at, kind.as_pointer()), align=1)
        order = [lane * shape.parts // LANES for lane in range(LANES)]
        return b.shuffle_vector(words, words, ir.Constant(VI, order))
    word = splat(b, b.load(b.bitcast(at, I32.as_pointer()), align=1))
    for part in range(1, shape.parts):
        other = b.gep(at, [I64(part * shape.apart)])
        mask = ir.Constant(ir.VectorType(I1, LANES), [lane * shape.parts // LANES >= part for lane in range(LANES)])
        word = b.select(mask, splat(b, b.load(b.bitcast(other, I32.as_pointer()), align=1)), word)
    return word


def _weights(b: Builder, shape: IntegerTile, address: Value) -> Value:
    """Load one group of 16 outputs: bytes as they are, or widened to 16 bits."""
    if GROUP[shape.how] == 4 or shape.kind == "s16":
        return b.load(pointer(b, address, VI), align=4)
    narrow = b.load(pointer(b, address, ir.VectorType(I8, 2 * LANES)), align=4)
    return b.bitcast((b.sext if shape.kind == "s8" else b.zext)(narrow, ir.VectorType(I16, 2 * LANES)), VI)


def emit_stores(b: Builder, shape: IntegerTile, a: TileArguments, sums: list[Value]) -> None:
    """Store sums, position by position, as the shape says: scaled, with what is added, bounded and rounded."""

    by_pieces = shape.bits < _HAS_MASKS and not shape.straddles
    by_pairs = shape.bits == PAIRED and shape.dtype in _PACKS and not shape.exact

    def stores(part: bool) -> None:
        first: list[tuple[list[Value], list[Value]]] = [([], []) for _ in range(shape.blocks)]
        masks = [_mask(b, shape, a, j) if part else None for j in range(shape.blocks)]
        factors, offsets = (
            [b.load(pointer(b, b.add(at, I64(WIDTH * j)), VF), align=4) for j in range(shape.blocks)]
            for at in (a.factor, a.offset)
        )
        bounds = splat(b, a.lower), splat(b, a.upper)
        weight, point = splat(b, a.weight), splat(b, b.trunc(a.point, I32))
        places, results = [], []
        for number, value in enumerate(sums):
            position, j = divmod(number, shape.blocks)
            to, other = (
                b.add(at, b.add(b.mul(step, I64(position)), I64(LANES * j * SIZES.get(dtype, 0))))
                for at, step, dtype in (
                    (a.dst, a.dst_step, shape.dtype),
                    (a.residual, a.residual_step, shape.residual),
                )
            )
            if not shape.exact:
                value = fma(b, b.sitofp(value, VF), factors[j], offsets[j])
                if shape.residual:
                    value = fma(b, load_float(b, other, shape.residual, masks[j]), weight, value)
                value = minimum(b, maximum(b, value, bounds[0]), bounds[1])
                if not by_pairs:
                    value = narrowed(b, value, shape.dtype, point)
            places.append(to)
            results.append(value)
        if by_pairs:
            results = _bytes_of_pairs(b, results, shape.dtype, point)
        for number, (to, value) in enumerate(zip(places, results, strict=True)):
            j = number % shape.blocks
            if part and by_pieces:
                first[j][0].append(to)
                first[j][1].append(value)
            else:
                store_lanes(b, to, value, masks[j])
        for j, (places, values) in enumerate(first):
            if places:
                store_first(b, places, values, b.sub(a.count, I64(LANES * j)))

    if not shape.part:
        stores(False)
        return
    is_part = b.icmp_signed("<", a.count, I64(LANES * shape.blocks))
    if shape.straddles:
        is_part = b.or_(is_part, b.icmp_signed(">", a.first, I64(0)))
    with b.if_else(is_part) as (partly, whole):
        with partly:
            stores(True)
        with whole:
            stores(False)


def _bytes_of_pairs(b: Builder, values: list[Value], dtype: str, point: Value) -> list[Value]:
    """Return floats as bytes as `narrowed` does, two vectors at a time: packing two costs what packing one does."""
    found: list[Value] = []
    words = [_words(b, value, point) for value in values]
    for at in range(0, len(words), 2):
        parts = _packed(b, words[at], words[min(at + 1, len(words) - 1)], dtype)
        for half in range(len(words[at : at + 2])):
            order = ir.Constant(ir.VectorType(I32, 4), [2 * half + number for number in (0, 4, 1, 5)])
            found.append(b.bitcast(b.shuffle_vector(parts, parts, order), _V8))
    return found


def packed_pair(b: Builder, first: Value, second: Value, dtype: str) -> Value:
    """Return two vectors of floats in a type of 8 bits as its 32 numbers, rounded to even, on registers of 256 bits."""
    none = ir.Constant(VI, [0] * LANES)
    parts = _packed(b, _words(b, first, none), _words(b, second, none), dtype)
    order = [2 * half + number for half in range(2) for number in (0, 4, 1, 5)]
    return b.shuffle_vector(parts, parts, ir.Constant(parts.type, order))


def _packed(b: Builder, first: Value, second: Value, dtype: str) -> Value:
    """Return two vectors that `_words` made as bytes, four of them in each lane."""
    packed = call(b, _PACKS[dtype], first, second, result=ir.VectorType(I8, 32))
    return b.bitcast(packed, ir.VectorType(I32, 8))


def _words(b: Builder, value: Value, point: Value) -> Value:
    """Return bounded floats, rounded to even and added to ``point``, in 16 bits: four of each half in turn."""
    halves = []
    for start in (0, LANES // 2):
        order = ir.Constant(ir.VectorType(I32, LANES // 2), list(range(start, start + LANES // 2)))
        of, plus = (b.shuffle_vector(each, each, order) for each in (value, point))
        whole = call(b, "llvm.x86.avx.cvt.ps2dq.256", of, result=ir.VectorType(I32, LANES // 2))
        halves.append(b.add(whole, plus))
    return call(b, "llvm.x86.avx2.packssdw", *halves, result=ir.VectorType(I16, LANES))


def _mask(b: Builder, shape: IntegerTile, a: TileArguments, j: int) -> Value:
    """Return the lanes of block ``j`` that are stored."""
    mask = lanes_below(b, b.sub(a.count, I64(LANES * j)))
    if shape.straddles:
        mask = b.and_(mask, b.not_(lanes_below(b, b.sub(a.first, I64(LANES * j)))))
    return mask


def narrowed(b: Builder, value: Value, dtype: str, point: Value | None = None) -> Value:
    """Return floats as a data type, rounded to even; s32 is saturated, NaN the least.

    Types of 8 and 16 bits are added to ``point`` (s32) after that, which neither moves a half to the other side nor costs bits
    of the float; the sums are in the range of the type.
    """
    if dtype == "f32":
        return value
    if dtype == "s32":
        whole = call(b, "llvm.rint.v16f32", value)
        fits = b.fptosi(minimum(b, maximum(b, whole, constant(-2147483648.0)), constant(_MOST)), VI)
        most = ir.Constant(VI, [0x7FFFFFFF] * LANES)
        return b.select(b.fcmp_ordered(">", whole, constant(_MOST)), most, fits)
    whole = b.bitcast(b.fadd(value, constant(_ROUND)), VI)
    stored = ir.VectorType(I16, LANES) if dtype in ("u16", "s16") else _V8
    return b.trunc(whole if point is None else b.add(whole, point), stored)


def narrowed_with(b: Builder, value: Value, point: Value, dtype: str) -> Value:
    """Return floats as a type of 8 or 16 bits: rounded to even, then added to a whole number; the sums are in its range."""
    return narrowed(b, value, dtype, b.fptosi(point, VI))


def load_float(b: Builder, address: Value, dtype: str, mask: Value | None) -> Value:
    """Load 16 numbers of a data type as floats; lanes that ``mask`` leaves out are not read."""
    kind = {"f32": VF, "s32": VI}.get(dtype, _V8)
    where = pointer(b, address, kind)
    if mask is None:
        value = b.load(where, align=SIZES[dtype])
    else:
        name = {"f32": "v16f32", "s32": "v16i32"}.get(dtype, "v16i8")
        zeros = ir.Constant(kind, [ir.Constant(kind.element, 0)] * LANES)
        value = call(b, f"llvm.masked.load.{name}.p0", where, I32(SIZES[dtype]), mask, zeros, result=kind)
    if dtype == "f32":
        return value
    if dtype != "s32":
        value = b.sext(value, VI) if dtype == "s8" else b.zext(value, VI)
    return b.sitofp(value, VF)


def store_lanes(b: Builder, address: Value, value: Value, mask: Value | None) -> None:
    """Store the lanes that ``mask`` names, all without one."""
    where = pointer(b, address, value.type)
    size = {I8: 1, I16: 2}.get(value.type.element, 4)
    if mask is None:
        b.store(value, where, align=size)
        return
    name = {F32: "v16f32", I32: "v16i32", I16: "v16i16"}.get(value.type.element, "v16i8")
    call(b, f"llvm.masked.store.{name}.p0", value, where, I32(size), mask, result=ir.VoidType())


def _phi(b: Builder, kind: ir.Type, value: Value, block: Value) -> Value:
    phi = b.phi(kind)
    phi.add_incoming(value, block)
    return phi
