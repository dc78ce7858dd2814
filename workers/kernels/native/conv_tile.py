"""The register tile of convolutions in chunks: neighbouring outputs of an image, wherever their sources are.

A tile has some positions and one block of 16 output channels. Its positions follow each other in the output; their sources
are some bytes apart, and some more where a row of outputs ends. So tiles need not end where rows do. The sums of a tile may be
continued: those of the first chunk of inputs begin with the bias, those of later ones with what the destination holds.
A tile of a block that groups share stores the outputs of one of them.

A wide tile has a block and the first half of the next one: of 24 outputs, a quarter of the sums would be of none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .tile_shape import NO_RESIDUAL
from .vec import (
    F32,
    HALF,
    I8,
    I32,
    I64,
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
    load,
    maximum,
    pointer,
    some_lanes,
    splat,
    store,
)  # fmt: skip

#: Lines of the next weights that a step asks for: fast enough for tiles that are few, slow enough for memory.
LINES = 2


class _Part(NamedTuple):
    """Some outputs of a tile: the type of their sums, the first one, and how far they are in weights and in dst."""

    kind: ir.Type
    first: int
    in_weights: Value
    in_dst: Value


class _Arguments(NamedTuple):
    """Arguments of a tile: addresses; distances in bytes; counts in items; the two lower bounds as floats."""

    T: Value
    steps: Value  #: the table of steps: source offset, lanes, bytes of weights to skip afterwards
    src: Value  #: of the first position
    column: Value  #: of the first position in its row of outputs
    width: Value  #: columns of a row of outputs
    step: Value  #: from position to position in the source
    wrap: Value  #: added to it where a row ends
    weights: Value
    weight_row: Value
    ahead: Value  #: weights that are asked for meanwhile
    dst: Value
    bias: Value
    biased: Value  #: outputs from the first of the tile that have a bias
    count: Value  #: outputs from the first of the tile
    outputs: (
        Value  #: address of words of bits, ones for each output that is stored of a block that is shared; 0 for all
    )
    is_first: Value  #: 1 for the first chunk, 0 for those that continue sums
    is_last: Value  #: 1 for the chunk after which sums are complete
    to_start: Value  #: distance from dst to a residual that sums begin with, or NO_RESIDUAL
    to_residual: Value  #: distance from dst to a residual that complete sums are added to, or NO_RESIDUAL
    low: Value  #: bound before that residual is added
    bound: Value
    to_weights: Value  #: of a wide tile, distance from the weights of one block to those of the next
    to_dst: Value  #: the same in dst

    def parts(self, wide: bool) -> list[_Part]:
        """Return the outputs of a position: a block, and half of the next one if the tile is ``wide``."""
        whole = _Part(VF, 0, I64(0), I64(0))
        return [whole, _Part(HALF, 16, self.to_weights, self.to_dst)] if wide else [whole]


def make_position_tile(positions: int, ragged: bool, shared: bool = False, at_once: int = 4, wide: bool = False) -> Any:
    """Return the intrinsic that computes a tile of ``positions``; its arguments are those of `_Arguments`, in order.

    ``ragged`` zeroes the lanes behind the last output; a block that is ``shared`` keeps the outputs that are not to be stored.
    The inner loop sums the inputs of a step ``at_once``, and those left over one by one. A ``wide`` tile is ragged.
    """

    @intrinsic
    def tile(
        _: Any, T: Any, steps: Any, src: Any, column: Any, width: Any, step: Any, wrap: Any, weights: Any, weight_row: Any,
        ahead: Any, dst: Any, bias: Any, biased: Any, count: Any, outputs: Any, is_first: Any, is_last: Any, to_start: Any,
        to_residual: Any, low: Any, bound: Any, to_weights: Any, to_dst: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            arguments = _Arguments(*a)
            places, parts = _places(b, positions, arguments), arguments.parts(wide)
            sums = _emit_sums(b, places, parts, _emit_start(b, positions, parts, arguments), arguments, at_once)
            _emit_stores(b, ragged, shared, parts, sums, arguments)
            return context.get_dummy_value()

        reals = (types.float32, types.float32)
        return types.void(*[types.int64] * 19, *reals, types.int64, types.int64), emit

    return tile


def _places(b: Builder, positions: int, a: _Arguments) -> list[Value]:
    """Return the distance of each position from the first one in the source."""
    places, column = [I64(0)], a.column
    for _ in range(positions - 1):
        column = b.add(column, I64(1))
        ends = b.icmp_signed("==", column, a.width)
        column = b.select(ends, I64(0), column)
        places.append(b.add(places[-1], b.add(a.step, b.select(ends, a.wrap, I64(0)))))
    # LLVM would compute the distances again in the hot loop, from each other, to save registers.
    keep = ir.FunctionType(I64, [I64])
    return [places[0], *(b.asm(keep, "", "=r,0", [place], False) for place in places[1:])]


def _emit_start(b: Builder, positions: int, parts: list[_Part], a: _Arguments) -> list[Value]:
    """Return what sums begin with: bias and residual, or the sums so far."""
    first, added, later, begun = (b.append_basic_block(name) for name in ("first", "added", "later", "begun"))
    b.cbranch(b.icmp_signed("!=", a.is_first, I64(0)), first, later)

    def at(position: int, part: _Part) -> Value:
        return b.add(b.add(a.dst, part.in_dst), I64(WIDTH * position))

    b.position_at_end(first)
    biases = []
    for part in parts:
        mask, where = lanes_below(b, b.sub(a.biased, I64(part.first))), b.add(a.bias, I64(4 * part.first))
        bias = call(b, "llvm.masked.load.v16f32.p0", pointer(b, where, VF), I32(4), mask, constant(0.0))
        biases.append(some_lanes(b, bias, part.kind.count))
    b.cbranch(b.icmp_signed("==", a.to_start, I64(NO_RESIDUAL)), begun, added)

    b.position_at_end(added)
    sums = [
        b.fadd(bias, load(b, b.add(at(i, part), a.to_start), part.kind))
        for i in range(positions)
        for part, bias in zip(parts, biases, strict=True)
    ]
    for i in range(positions, 2 * positions):
        for part in parts:
            emit_prefetch(b, b.add(at(i, part), a.to_start), 3)
    b.branch(begun)

    b.position_at_end(later)
    so_far = [load(b, at(i, part), part.kind) for i in range(positions) for part in parts]
    b.branch(begun)

    b.position_at_end(begun)
    start = []
    for bias, one, other in zip(biases * positions, sums, so_far, strict=True):
        phi = b.phi(bias.type)
        phi.add_incoming(bias, first)
        phi.add_incoming(one, added)
        phi.add_incoming(other, later)
        start.append(phi)
    return start


def _emit_sums(
    b: Builder, places: list[Value], parts: list[_Part], start: list[Value], a: _Arguments, at_once: int
) -> list[Value]:
    """Return the sums, position by position, and the parts of each.

    Instructions beside the products take time where another thread shares the core, so a turn of the loop has several inputs.
    """
    before = b.block
    outer, turn, rest, single, latch, done = map(
        b.append_basic_block, ("step", "lanes", "rest", "lane", "next", "store")
    )
    b.branch(outer)

    b.position_at_end(outer)
    t, first_row = _phi(b, I64, I64(0), before), _phi(b, I64, a.weights, before)
    asked = _phi(b, I64, a.ahead, before)
    carried = [_phi(b, value.type, value, before) for value in start]
    entry = b.add(a.steps, b.mul(t, I64(24)))
    offset, lanes, skip = (b.load(pointer(b, b.add(entry, I64(8 * i)), I64), align=8) for i in range(3))
    for line in range(LINES):
        emit_prefetch(b, b.add(asked, I64(64 * line)), 2)
    given = [lanes, first_row, b.add(a.src, offset), *carried]
    b.cbranch(b.icmp_signed(">=", lanes, I64(at_once)), turn, rest)

    b.position_at_end(turn)
    state = [_phi(b, value.type, value, outer) for value in given]
    turned = _emit_turn(b, places, parts, state, a, at_once)
    _again(state, turned, turn)
    b.cbranch(b.icmp_signed(">=", turned[0], I64(at_once)), turn, rest)

    b.position_at_end(rest)
    left = [_phi(b, value.type, value, outer) for value in given]
    _again(left, turned, turn)
    b.cbranch(b.icmp_signed("!=", left[0], I64(0)), single, latch)

    b.position_at_end(single)
    state = [_phi(b, value.type, value, rest) for value in left]
    turned = _emit_turn(b, places, parts, state, a, 1)
    _again(state, turned, single)
    b.cbranch(b.icmp_signed("!=", turned[0], I64(0)), single, latch)

    b.position_at_end(latch)
    ended = [_phi(b, value.type, value, rest) for value in left]
    _again(ended, turned, single)
    _, row, _, *sums = ended
    t_next, asked_next = b.add(t, I64(1)), b.add(asked, I64(64 * LINES))
    _again([t, first_row, asked, *carried], [t_next, b.add(row, skip), asked_next, *sums], latch)
    b.cbranch(b.icmp_signed("<", t_next, a.T), outer, done)
    b.position_at_end(done)
    return sums


def _emit_turn(
    b: Builder, places: list[Value], parts: list[_Part], state: list[Value], a: _Arguments, count: int
) -> list[Value]:
    """Return the state of the inner loop after ``count`` inputs: inputs left, addresses of weights and source, sums."""
    left, row, source, *sums = state
    for number in range(count):
        # A fence: else LLVM would load weights of later inputs, and keep sums on the stack.
        row = b.asm(ir.FunctionType(I64, [I64]), "", "=r,0,~{memory}", [row], True)
        factors = [load(b, b.add(row, part.in_weights), part.kind) for part in parts]
        base = pointer(b, b.add(source, I64(4 * number)), I8)
        new: list[Value] = []
        for place in places:
            value = splat(b, b.load(b.bitcast(b.gep(base, [place]), F32.as_pointer()), align=4))
            for factor in factors:
                new.append(fma(b, some_lanes(b, value, factor.type.count), factor, sums[len(new)]))
        sums = new
        row = b.add(row, a.weight_row)
    return [b.sub(left, I64(count)), row, b.add(source, I64(4 * count)), *sums]


def _emit_stores(b: Builder, ragged: bool, shared: bool, parts: list[_Part], sums: list[Value], a: _Arguments) -> None:
    """Store the sums; complete ones after the residual is added and the bounds are applied. Other lanes of a block are zeros."""
    low, bound = splat(b, a.low), splat(b, a.bound)
    masks = [lanes_below(b, b.sub(a.count, I64(part.first))) for part in parts] * (len(sums) // len(parts))
    places = [
        b.add(b.add(a.dst, part.in_dst), I64(WIDTH * i)) for i in range(len(sums) // len(parts)) for part in parts
    ]
    sums = [_all_lanes(b, value) for value in sums]

    def finished(value: Value, at: Value, mask: Value, has_residual: bool) -> Value:
        if has_residual:
            value = b.fadd(maximum(b, low, value), load(b, b.add(at, a.to_residual)))
        value = maximum(b, bound, value)
        return b.select(mask, value, constant(0.0)) if ragged else value

    def complete(has_residual: bool, in_part: bool) -> None:
        own = b.load(pointer(b, a.outputs, VI), align=8) if in_part else None
        for value, at, mask in zip(sums, places, masks, strict=True):
            value = finished(value, at, mask, has_residual)
            if own is not None:
                # LLVM makes a masked store of a selection, which takes many cycles on some processors.
                kept = b.and_(b.bitcast(load(b, at), VI), b.not_(own))
                value = b.bitcast(b.or_(kept, b.and_(b.bitcast(value, VI), own)), VF)
            store(b, at, value)

    with b.if_else(b.icmp_signed("!=", a.is_last, I64(0))) as (last, earlier):
        with last, b.if_else(b.icmp_signed("!=", a.to_residual, I64(NO_RESIDUAL))) as branches:
            for branch, has_residual in zip(branches, (True, False), strict=True):
                with branch:
                    if not shared:
                        complete(has_residual, False)
                        continue
                    with b.if_else(b.icmp_signed("!=", a.outputs, I64(0))) as (partly, whole):
                        with partly:
                            complete(has_residual, True)
                        with whole:
                            complete(has_residual, False)
        with earlier:
            for value, at in zip(sums, places, strict=True):
                store(b, at, value)


def _all_lanes(b: Builder, value: Value) -> Value:
    """Return a vector with zeros in the lanes behind the first 8 if it has no more."""
    zeros = ir.Constant(value.type, [0.0] * value.type.count)
    return value if value.type == VF else b.shuffle_vector(value, zeros, ir.Constant(VI, [*range(16)]))


def _phi(b: Builder, kind: ir.Type, value: Value, block: Value) -> Value:
    phi = b.phi(kind)
    phi.add_incoming(value, block)
    return phi


def _again(phis: list[Value], values: list[Value], block: Value) -> None:
    """Let a loop, or what follows it, continue with ``values`` after ``block``."""
    for phi, value in zip(phis, values, strict=True):
        phi.add_incoming(value, block)
