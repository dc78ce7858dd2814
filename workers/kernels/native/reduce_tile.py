"""The register tile of convolutions and products: positions times blocks of 16 outputs, summed over many inputs.

A tile accumulates ``T`` steps. Step t reads some floats, its lanes, at every position of the tile, and as many rows of
16 weights for each block; a table of (source offset, lanes, bytes of weights to skip afterwards) says which. A masked
tile's table also says where a step's weights begin, and which of 16 outputs they belong to. The inner
loop has one load for each block and one broadcast for each position, and needs no spill. Left to itself, LLVM hoists the loads
of an unrolled loop until accumulators go to the stack. Vectors of 256 bits, and products, have an unrolled one, with fences:
while another program computes on the same core, instructions beside the multiplications take time, too.
"""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .tile_shape import NO_RESIDUAL, OPEN, Arguments, TileShape
from .tile_stores import emit_stores
from .vec import (
    F32,
    I8,
    I16,
    I32,
    I64,
    VF,
    VI,
    VM,
    WIDTH,
    Builder,
    Value,
    call,
    constant,
    emit_prefetch,
    fma,
    isa_of,
    lanes_below,
    load,
    pointer,
    splat,
)  # fmt: skip

#: ISA levels whose inner loop has several inputs in a turn, unless it asks for these; and how many inputs.
_NOT_UNROLLED: Final = {"x86-64-v3": (), "x86-64-v4": ("next",)}
_AT_ONCE: Final = 4
#: Rows of weights between those that are multiplied and those that are asked for from the second-level cache.
_ROWS_AHEAD: Final = 16
#: Runs that one address reaches: a load adds a distance to it, or the double of one.
_REACH: Final = 3


def make_tile(shape: TileShape) -> Any:
    """Return the intrinsic that computes one tile; its arguments are those of `Arguments`, in order."""

    @intrinsic
    def tile(
        _: Any, T: Any, steps: Any, src: Any, run: Any, weights: Any, weight_block: Any, weight_row: Any, ahead: Any,
        dst: Any, dst_block: Any, dst_step: Any, lane: Any, bias: Any, biased: Any, count: Any, to_residual: Any,
        low: Any, bound: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            arguments = Arguments(*a)
            _ask_early(b, shape, arguments)
            emit_sums = _emit_group_sums if shape.inputs else _emit_sums
            emit_stores(b, shape, arguments, emit_sums(b, shape, arguments))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 16, types.float32, types.float32), emit

    return tile


def make_foreseeing_tile(shape: TileShape) -> Any:
    """Return the intrinsic of a tile that asks for the "next": its last arguments are ``lines`` and ``to_next``."""

    @intrinsic
    def tile(
        _: Any, T: Any, steps: Any, src: Any, run: Any, weights: Any, weight_block: Any, weight_row: Any, ahead: Any,
        dst: Any, dst_block: Any, dst_step: Any, lane: Any, bias: Any, biased: Any, count: Any, to_residual: Any,
        low: Any, bound: Any, lines: Any, to_next: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            arguments = Arguments(*a)
            _ask_early(b, shape, arguments)
            emit_stores(b, shape, arguments, _emit_sums(b, shape, arguments))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 16, types.float32, types.float32, types.int64, types.int64), emit

    return tile


def make_tiles(shapes: dict[int, TileShape]) -> Any:
    """Return the intrinsic that computes one of several tiles; its first argument is the number of one, then as of one tile."""

    @intrinsic
    def tile(
        _: Any, number: Any, T: Any, steps: Any, src: Any, run: Any, weights: Any, weight_block: Any, weight_row: Any,
        ahead: Any, dst: Any, dst_block: Any, dst_step: Any, lane: Any, bias: Any, biased: Any, count: Any,
        to_residual: Any, low: Any, bound: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            arguments = Arguments(*a[1:])
            done = b.append_basic_block("computed")
            # A number of no tile takes the last one's place.
            places = {number: b.append_basic_block("tile") for number in shapes}
            chosen = b.switch(a[0], list(places.values())[-1])
            for number, shape in shapes.items():
                chosen.add_case(I64(number), places[number])
                b.position_at_end(places[number])
                _ask_early(b, shape, arguments)
                emit_stores(b, shape, arguments, _emit_sums(b, shape, arguments))
                b.branch(done)
            b.position_at_end(done)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 17, types.float32, types.float32), emit

    return tile


def _ask_early(b: Builder, shape: TileShape, a: Arguments) -> None:
    """Prefetch the residual while the sums are computed: it was written long ago and is read once.

    Or prefetch dst, or the residual, of the tile below, which a tile of few inputs would wait for: rows that begin inside of a
    line of the cache end in the next one.
    """
    height = sum(shape.runs)

    def ask(distance: Value, down: int, ends: tuple[int, ...]) -> None:
        for position in range(height):
            for j in range(shape.blocks):
                at = b.add(a.dst, b.add(b.mul(a.dst_step, I64(position + down)), b.mul(a.dst_block, I64(j))))
                for end in ends:
                    emit_prefetch(b, b.add(b.add(at, distance), I64(end)), 3)

    is_there = b.icmp_signed("!=", a.to_residual, I64(NO_RESIDUAL))
    if shape.asks == "dst":
        ask(b.select(is_there, a.to_residual, I64(0)), height, (0, WIDTH - 4))
        return
    with b.if_then(is_there):
        ask(a.to_residual, 0, (0,))


def _emit_unrolled_sums(b: Builder, shape: TileShape, a: Arguments) -> list[Value]:
    """Return the sums as `_emit_sums` does, several inputs in a turn of the inner loop, and those left over one by one."""
    before = b.block
    outer, turn, rest, single, latch, done = map(
        b.append_basic_block, ("step", "lanes", "rest", "lane", "next", "store")
    )
    start = _start(b, shape, a)
    b.branch(outer)

    b.position_at_end(outer)
    t, first_row = _phi(b, I64, I64(0), before), _phi(b, I64, a.weights, before)
    carried = [_phi(b, VF, value, before) for value in start]
    entry = b.add(a.steps, b.mul(t, I64(24)))
    offset, lanes, skip = (b.load(pointer(b, b.add(entry, I64(8 * i)), I64), align=8) for i in range(3))
    begin = b.add(a.src, offset)
    sources = [b.add(begin, b.mul(a.run, I64(index))) for index in range(0, len(shape.runs), _REACH)]
    given = [lanes, first_row, *sources, *carried]
    entered = _ask_lines(b, a, t)
    b.cbranch(b.icmp_signed(">=", lanes, I64(_AT_ONCE)), turn, rest)

    b.position_at_end(turn)
    state = [_phi(b, value.type, value, entered) for value in given]
    turned = _emit_turn(b, shape, a, state, _AT_ONCE)
    _again(b, state, turned, turn)
    b.cbranch(b.icmp_signed(">=", turned[0], I64(_AT_ONCE)), turn, rest)

    b.position_at_end(rest)
    left = [_phi(b, value.type, value, entered) for value in given]
    _again(b, left, turned, turn)
    b.cbranch(b.icmp_signed("!=", left[0], I64(0)), single, latch)

    b.position_at_end(single)
    state = [_phi(b, value.type, value, rest) for value in left]
    turned = _emit_turn(b, shape, a, state, 1)
    _again(b, state, turned, single)
    b.cbranch(b.icmp_signed("!=", turned[0], I64(0)), single, latch)

    b.position_at_end(latch)
    ended = [_phi(b, value.type, value, rest) for value in left]
    _again(b, ended, turned, single)
    _, row, *others = ended
    sums = others[len(sources) :]
    t_next = b.add(t, I64(1))
    _again(b, [t, first_row, *carried], [t_next, b.add(row, skip), *sums], latch)
    b.cbranch(b.icmp_signed("<", t_next, a.T), outer, done)
    b.position_at_end(done)
    return sums


def _emit_turn(b: Builder, shape: TileShape, a: Arguments, state: list[Value], count: int) -> list[Value]:
    """Emit ``count`` inputs of the inner loop, and return its state after them.

    A state is how many inputs are left, the address of the next weights, those of the source for each `_REACH` runs, and the
    sums. LLVM may not know how addresses were computed: it would compute them from each other, an instruction for each run.
    """
    groups = -(-len(shape.runs) // _REACH)
    left, row, *others = state
    sources, sums = others[:groups], others[groups:]
    for number in range(count):
        # A fence: else LLVM would load weights of later inputs, and keep sums on the stack.
        row = _hide(b, row, ",~{memory}")
        sources = [_hide(b, source) for source in sources]
        if shape.asks == "weights":
            emit_prefetch(b, b.add(row, a.ahead), 2)
        factors = [load(b, b.add(row, b.mul(a.weight_block, I64(j)))) for j in range(shape.blocks)]
        moved = 0 if shape.lane == OPEN else number * shape.lane
        new: list[Value] = []
        for index, length in enumerate(shape.runs):
            run = b.add(sources[index // _REACH], b.mul(a.run, I64(index % _REACH)))
            for position in range(length):
                place = b.add(run, I64(position * shape.step + moved))
                value = splat(b, b.load(pointer(b, place, F32), align=4))
                new += [fma(b, value, factor, sums[len(new) + j]) for j, factor in enumerate(factors)]
        sums, row = new, b.add(row, a.weight_row)
        if shape.lane == OPEN:
            sources = [b.add(source, a.lane) for source in sources]
    if shape.lane != OPEN:
        sources = [b.add(source, I64(count * shape.lane)) for source in sources]
    return [b.sub(left, I64(count)), row, *sources, *sums]


def _emit_sums(b: Builder, shape: TileShape, a: Arguments) -> list[Value]:
    """Return the sums, position by position, the blocks of one position side by side."""
    if shape.asks not in _NOT_UNROLLED.get(isa_of(b), (shape.asks,)) and not (shape.masked or shape.trims):
        return _emit_unrolled_sums(b, shape, a)
    start = _start(b, shape, a)
    before = b.block
    outer, latch, done = (b.append_basic_block(name) for name in ("step", "next", "store"))
    b.branch(outer)

    b.position_at_end(outer)
    t = _phi(b, I64, I64(0), before)
    row_phi = first_row = _phi(b, I64, a.weights, before)
    carried = [_phi(b, VF, value, before) for value in start]
    size = 4 if shape.masked or shape.trims else 3
    entry = b.add(a.steps, b.mul(t, I64(8 * size)))
    offset, lanes, skip, *more = (b.load(pointer(b, b.add(entry, I64(8 * i)), I64), align=8) for i in range(size))
    begin = b.add(a.src, offset)
    mask = None
    if shape.masked:
        first_row, skip = b.add(a.weights, skip), I64(0)
        mask = b.bitcast(b.trunc(more[0], I16), VM)
    entered = _ask_lines(b, a, t)
    following = begin if a.to_next is None else b.add(begin, a.to_next)
    trims = shape.trims or ((0, 0),)
    inner = [b.append_basic_block("lane") for _ in trims]
    if shape.trims:
        chosen = b.switch(more[0], inner[0])
        for number, block in enumerate(inner[1:], 1):
            chosen.add_case(I64(number), block)
    else:
        b.branch(inner[0])
    found = []
    for block, trim in zip(inner, trims, strict=True):
        b.position_at_end(block)
        state = [_phi(b, value.type, value, entered) for value in (lanes, first_row, begin, following, *carried)]
        turned = _emit_lane(b, shape, a, trim, mask, state)
        _again(b, state, turned, block)
        b.cbranch(b.icmp_signed(">", turned[0], I64(0)), block, latch)
        found.append(turned)

    b.position_at_end(latch)
    ended = [_phi(b, value.type, value, inner[0]) for value in found[0]]
    for block, turned in zip(inner[1:], found[1:], strict=True):
        _again(b, ended, turned, block)
    _, row, _, _, *sums = ended
    t_next = b.add(t, I64(1))
    _again(b, [t, row_phi, *carried], [t_next, b.add(row, skip), *sums], latch)
    b.cbranch(b.icmp_signed("<", t_next, a.T), outer, done)
    b.position_at_end(done)
    return sums


def _emit_lane(
    b: Builder, shape: TileShape, a: Arguments, trim: tuple[int, int], mask: Value | None, state: list[Value]
) -> list[Value]:
    """Emit one input of the inner loop, and return the state after it.

    A state is how many inputs are left, the addresses of the next weights, of the source and of what is asked for, and the sums.
    """
    left, row, source, asked, *sums = state
    blocks = range(shape.blocks)
    row_bytes = pointer(b, row, I8)
    if shape.asks == "weights":
        emit_prefetch(b, b.add(row, a.ahead), 2)
    elif shape.asks == "next":
        emit_prefetch(b, asked, 3)
        for j in blocks:
            emit_prefetch(b, b.add(row, b.add(b.mul(a.weight_block, I64(j)), b.mul(a.weight_row, I64(_ROWS_AHEAD)))), 3)
    factors = [_load(b, row_bytes, b.mul(a.weight_block, I64(j)), VF) for j in blocks]
    if mask is not None:
        factors = [b.select(mask, factor, constant(0.0)) for factor in factors]
    new: list[Value] = []
    for index, length in enumerate(shape.runs):
        base = pointer(b, b.add(source, b.mul(a.run, I64(index))) if index else source, I8)
        for position in range(length):
            seen = sums[len(new) : len(new) + shape.blocks]
            if trim[0] <= position < length - trim[1]:
                value = splat(b, _load(b, base, I64(position * shape.step), F32))
                seen = [fma(b, value, factor, each) for factor, each in zip(factors, seen, strict=True)]
            new += seen
    source = b.add(source, a.lane if shape.lane == OPEN else I64(shape.lane))
    return [b.sub(left, I64(1)), b.add(row, a.weight_row), source, b.add(asked, I64(shape.step)), *new]


def _ask_lines(b: Builder, a: Arguments, t: Value) -> Value:
    """Prefetch the lines of weights that a step asks for, if it does; return the block that follows."""
    before = b.block
    if a.lines is None:
        return before
    turn, asked = b.append_basic_block("ask"), b.append_basic_block("asked")
    begin = b.add(a.ahead, b.mul(t, b.mul(a.lines, I64(64))))
    b.cbranch(b.icmp_signed(">", a.lines, I64(0)), turn, asked)
    b.position_at_end(turn)
    number = _phi(b, I64, I64(0), before)
    emit_prefetch(b, b.add(begin, b.mul(number, I64(64))), 2)
    following = b.add(number, I64(1))
    number.add_incoming(following, turn)
    b.cbranch(b.icmp_signed("<", following, a.lines), turn, asked)
    b.position_at_end(asked)
    return asked


def _emit_group_sums(b: Builder, shape: TileShape, a: Arguments) -> list[Value]:
    """Return the sums of groups: each input is shuffled to the lanes of the outputs of its group."""
    start = _bias(b, a.bias, a.biased)
    before, step, done = b.block, b.append_basic_block("step"), b.append_basic_block("store")
    b.branch(step)
    b.position_at_end(step)
    t = _phi(b, I64, I64(0), before)
    carried = [_phi(b, VF, start, before) for _ in range(sum(shape.runs))]
    entry = b.add(a.steps, b.mul(t, I64(32)))
    offset, first = (b.load(pointer(b, b.add(entry, I64(at)), I64), align=8) for at in (0, 16))
    source, row = b.add(a.src, offset), b.add(a.weights, first)
    places = [
        b.add(source, b.add(b.mul(a.run, I64(index)), I64(position * shape.step)))
        for index, length in enumerate(shape.runs)
        for position in range(length)
    ]
    sums: list[Value] = list(carried)
    for i in range(shape.inputs):
        factor = load(b, b.add(row, I64(WIDTH * i)))
        lanes = ir.Constant(VI, [lane // shape.inputs * shape.inputs + i for lane in range(16)])
        for index, place in enumerate(places):
            # Else LLVM would keep what it reads twice in registers, and sums on the stack.
            b.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], True)
            value = load(b, place)
            sums[index] = fma(b, b.shuffle_vector(value, value, lanes), factor, sums[index])
    t_next = b.add(t, I64(1))
    for phi, value in zip((t, *carried), (t_next, *sums), strict=True):
        phi.add_incoming(value, step)
    b.cbranch(b.icmp_signed("<", t_next, a.T), step, done)
    b.position_at_end(done)
    return sums


def _phi(b: Builder, kind: ir.Type, value: Value, block: Value) -> Value:
    phi = b.phi(kind)
    phi.add_incoming(value, block)
    return phi


def _load(b: Builder, base: Value, distance: Value, kind: ir.Type) -> Value:
    return b.load(b.bitcast(b.gep(base, [distance]), kind.as_pointer()), align=4)


def _again(b: Builder, phis: list[Value], values: list[Value], block: Value) -> None:
    """Let a loop, or what follows it, continue with ``values`` after ``block``."""
    for phi, value in zip(phis, values, strict=True):
        phi.add_incoming(value, block)


def _hide(b: Builder, value: Value, clobbered: str = "") -> Value:
    """Return an int64 of which LLVM does not know how it was computed."""
    return b.asm(ir.FunctionType(I64, [I64]), "", f"=r,0{clobbered}", [value], bool(clobbered))


def _start(b: Builder, shape: TileShape, a: Arguments) -> list[Value]:
    """Return what sums begin with."""
    blocks = [_bias(b, b.add(a.bias, I64(WIDTH * j)), b.sub(a.biased, I64(16 * j))) for j in range(shape.blocks)]
    return blocks * sum(shape.runs)


def _bias(b: Builder, address: Value, count: Value) -> Value:
    """Load the lanes below ``count``, zeros in the others; with none, the address is not touched."""
    return call(b, "llvm.masked.load.v16f32.p0", pointer(b, address, VF), I32(4), lanes_below(b, count), constant(0.0))
