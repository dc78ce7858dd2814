"""The register tile of convolutions in chunks: neighbouring outputs of an image, wherever their sources are.

A tile has some positions and one block of 16 output channels. Its positions follow each other in the output; their sources
are some bytes apart, and some more where a row of outputs ends. So tiles need not end where rows do. The sums of a tile may be
continued: those of the first chunk of inputs begin with the bias, those of later ones with what the destination holds.
A tile of a block that groups share stores the outputs of one of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .tile_shape import NO_RESIDUAL
from .vec import (
    F32,
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
    splat,
    store,
)  # fmt: skip

#: Lines of the next weights that a step asks for: fast enough for tiles that are few, slow enough for memory.
LINES = 2


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


def make_position_tile(positions: int, ragged: bool, shared: bool = False, at_once: int = 4) -> Any:
    """Return the intrinsic that computes a tile of ``positions``; its arguments are those of `_Arguments`, in order.

    ``ragged`` zeroes the lanes behind the last output; a block that is ``shared`` keeps the outputs that are not to be stored.
    The inner loop sums the inputs of a step ``at_once``, and those left over one by one.
    """

    @intrinsic
    def tile(
        _: Any, T: Any, steps: Any, src: Any, column: Any, width: Any, step: Any, wrap: Any, weights: Any, weight_row: Any,
        ahead: Any, dst: Any, bias: Any, biased: Any, count: Any, outputs: Any, is_first: Any, is_last: Any, to_start: Any,
        to_residual: Any, low: Any, bound: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            arguments = _Arguments(*a)
            places = _places(b, positions, arguments)
            sums = _emit_sums(b, places, _emit_start(b, positions, arguments), arguments, at_once)
            _emit_stores(b, ragged, shared, sums, arguments)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 19, types.float32, types.float32), emit

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


def _emit_start(b: Builder, positions: int, a: _Arguments) -> list[Value]:
    """Return what sums begin with: bias and residual, or the sums so far."""
    first, added, later, begun = (b.append_basic_block(name) for name in ("first", "added", "later", "begun"))
    b.cbranch(b.icmp_signed("!=", a.is_first, I64(0)), first, later)

    b.position_at_end(first)
    mask = lanes_below(b, a.biased)
    bias = call(b, "llvm.masked.load.v16f32.p0", pointer(b, a.bias, VF), I32(4), mask, constant(0.0))
    b.cbranch(b.icmp_signed("==", a.to_start, I64(NO_RESIDUAL)), begun, added)

    b.position_at_end(added)
    at = [b.add(a.dst, b.add(a.to_start, I64(WIDTH * i))) for i in range(2 * positions)]
    sums = [b.fadd(bias, load(b, each)) for each in at[:positions]]
    for each in at[positions:]:
        emit_prefetch(b, each, 3)
    b.branch(begun)

    b.position_at_end(later)
    so_far = [load(b, b.add(a.dst, I64(WIDTH * i))) for i in range(positions)]
    b.branch(begun)

    b.position_at_end(begun)
    start = []
    for one, other in zip(sums, so_far, strict=True):
        phi = b.phi(VF)
        phi.add_incoming(bias, first)
        phi.add_incoming(one, added)
        phi.add_incoming(other, later)
        start.append(phi)
    return start


def _emit_sums(b: Builder, places: list[Value], start: list[Value], a: _Arguments, at_once: int) -> list[Value]:
    """Return the sums, position by position.

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
    carried = [_phi(b, VF, value, before) for value in start]
    entry = b.add(a.steps, b.mul(t, I64(24)))
    offset, lanes, skip = (b.load(pointer(b, b.add(entry, I64(8 * i)), I64), align=8) for i in range(3))
    for line in range(LINES):
        emit_prefetch(b, b.add(asked, I64(64 * line)), 2)
    given = [lanes, first_row, b.add(a.src, offset), *carried]
    b.cbranch(b.icmp_signed(">=", lanes, I64(at_once)), turn, rest)

    b.position_at_end(turn)
    state = [_phi(b, value.type, value, outer) for value in given]
    turned = _emit_turn(b, places, state, a, at_once)
    _again(state, turned, turn)
    b.cbranch(b.icmp_signed(">=", turned[0], I64(at_once)), turn, rest)

    b.position_at_end(rest)
    left = [_phi(b, value.type, value, outer) for value in given]
    _again(left, turned, turn)
    b.cbranch(b.icmp_signed("!=", left[0], I64(0)), single, latch)

    b.position_at_end(single)
    state = [_phi(b, value.type, value, rest) for value in left]
    turned = _emit_turn(b, places, state, a, 1)
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


def _emit_turn(b: Builder, places: list[Value], state: list[Value], a: _Arguments, count: int) -> list[Value]:
    """Return the state of the inner loop after ``count`` inputs: inputs left, addresses of weights and source, sums."""
    left, row, source, *sums = state
    for number in range(count):
        # A fence: else LLVM would load weights of later inputs, and keep sums on the stack.
        row = b.asm(ir.FunctionType(I64, [I64]), "", "=r,0,~{memory}", [row], True)
        factors = load(b, row)
        base = pointer(b, b.add(source, I64(4 * number)), I8)
        sums = [
            fma(b, splat(b, b.load(b.bitcast(b.gep(base, [place]), F32.as_pointer()), align=4)), factors, value)
            for place, value in zip(places, sums, strict=True)
        ]
        row = b.add(row, a.weight_row)
    return [b.sub(left, I64(count)), row, b.add(source, I64(4 * count)), *sums]


def _emit_stores(b: Builder, ragged: bool, shared: bool, sums: list[Value], a: _Arguments) -> None:
    """Store the sums; complete ones after the residual is added and the bounds are applied."""
    low, bound, mask = splat(b, a.low), splat(b, a.bound), lanes_below(b, a.count)
    places = [b.add(a.dst, I64(WIDTH * i)) for i in range(len(sums))]

    def finished(value: Value, at: Value, has_residual: bool) -> Value:
        if has_residual:
            value = b.fadd(maximum(b, low, value), load(b, b.add(at, a.to_residual)))
        value = maximum(b, bound, value)
        return b.select(mask, value, constant(0.0)) if ragged else value

    def complete(has_residual: bool, in_part: bool) -> None:
        own = b.load(pointer(b, a.outputs, VI), align=8) if in_part else None
        for value, at in zip(sums, places, strict=True):
            value = finished(value, at, has_residual)
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


def _phi(b: Builder, kind: ir.Type, value: Value, block: Value) -> Value:
    phi = b.phi(kind)
    phi.add_incoming(value, block)
    return phi


def _again(phis: list[Value], values: list[Value], block: Value) -> None:
    """Let a loop, or what follows it, continue with ``values`` after ``block``."""
    for phi, value in zip(phis, values, strict=True):
        phi.add_incoming(value, block)
