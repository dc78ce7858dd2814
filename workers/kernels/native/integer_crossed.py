"""Product of many rows of 8-bit integers in 16 bits by half the multiplications: Winograd's products of vectors.

Of four inputs x by weights w, x0 w0 + x1 w1 + x2 w2 + x3 w3 is (x0 + w2)(x2 + w0) + (x1 + w3)(x3 + w1), less x0 x2 + x1 x3, which
`integer_crossed_rows` sums for each row, and less w0 w2 + w1 w3, which are summed for each output while its weights are widened.
Sums of 16 bits hold a source less its zero point (10 bits) plus a weight; those of 32 bits are exact modulo 2**32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_bounds import make_bounds
from .integer_crossed_weights import make_widen
from .integer_dot import multiply_groups, register_bits
from .integer_tile import SIZES, IntegerTile, TileArguments, emit_stores
from .limits import CROSSED_GROUPS
from .stack_room import stack_room
from .vec import I8, I16, I32, I64, LANES, VI, WIDTH, Builder, Value, emit_prefetch, pointer, prefetch, splat

#: Rows of a tile: the sums of two vectors each, the weights of four inputs, two pairs of sources and two sums fill 16 registers.
HEIGHT: Final = 4
_WORDS: Final = ir.VectorType(I16, 2 * LANES)


def make(isa: str, dtype: str, residual: str, exact: bool, part: bool, kind: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel; ``dtype`` and ``residual`` (nothing: none) are data types of dst and of what is added.

    ``part`` if the outputs are no whole blocks of 16; ``kind`` is the data type of weights.

    Arguments, sizes in bytes unless said otherwise: addresses of src in 16 bits, of the products of its rows (s32), of weights in
    pairs, of dst, residual, terms (s32), factors and offsets (f32, one an output, filled up to whole blocks), and of scale (f32)
    and zero point (s32) of dst (0: none); rows, blocks of 16 outputs, strips of at least six rows, outputs, and groups of four
    inputs; the distances from row to row of src, dst and residual; and as floats the residual's factor and the bounds of the
    result before scale and zero point of dst. One item of work is a strip of rows for a block.
    """
    bits = register_bits(isa)
    multiply = make_rows(bits, dtype, residual, exact, part)
    widen, weight_room, term_room = make_widen(bits, kind, 2), stack_room(CROSSED_GROUPS * 2 * WIDTH), stack_room(WIDTH)
    size, other_size = SIZES[dtype], SIZES.get(residual, 0)
    bounds = make_bounds(dtype)

    def product(
        begin: int, end: int, src: int, squares: int, weights: int, dst: int, other: int, terms: int, factors: int,
        offsets: int, scale: int, zero_point: int, rows: int, blocks: int, strips: int, outputs: int, groups: int,
        src_row: int, dst_row: int, other_row: int, weight: float, low: float, high: float,
    ) -> None:  # fmt: skip
        factor32, low32, high32, plus = bounds(scale, zero_point, weight, low, high)
        wide, own_terms = weight_room(), term_room()
        for item in range(begin, end):
            block = item % blocks
            strip = item // blocks
            number = block * 64
            widen(groups, weights + block * groups * 64, wide, terms + number, own_terms)
            following = weights + (block + 1) % blocks * groups * 64
            multiply(rows * strip // strips, rows * (strip + 1) // strips, src, src_row, squares, wide, groups, following, groups,
                     dst + block * 16 * size, dst_row, own_terms, factors + number, offsets + number, outputs - block * 16,
                     other + block * 16 * other_size, other_row, factor32, low32, high32, plus)  # fmt: skip

    return product, types.void(*[types.int64] * 20, *[types.float64] * 3)


def make_rows(bits: int, dtype: str, residual: str, exact: bool, part: bool) -> Callable[..., None]:
    """Return the function that computes a block of 16 outputs of at least six rows.

    Arguments: the first row and the end; addresses of src, its row, of the products of rows, of what `make_widen` writes; groups
    of four inputs; the address of what is read next, and lines of the cache of it to ask for meanwhile; then the addresses,
    distances and numbers of `TileArguments` from dst on, of the first row of all.
    """
    shape = IntegerTile("pairs", bits, (HEIGHT,), 1, dtype, residual, exact, part, "s16")
    large, less = (_make_tile(shape, height) for height in (HEIGHT, HEIGHT - 1))

    def multiply(
        first: int, end: int, src: int, src_row: int, squares: int, weights: int, groups: int, following: int, lines: int,
        dst: int, dst_row: int, terms: int, factors: int, offsets: int, count: int, other: int, other_row: int, weight: float,
        low: float, high: float, plus: int,
    ) -> None:  # fmt: skip
        rows = end - first
        tiles = (rows + HEIGHT - 1) // HEIGHT
        larger = rows - tiles * (HEIGHT - 1)
        row, asked, share = first, 0, (lines + tiles - 1) // tiles
        for number in range(tiles):
            for line in range(asked, min(lines, asked + share)):
                prefetch(following + line * 64)
            asked += share
            at, to, beside = src + row * src_row, dst + row * dst_row, other + row * other_row
            if number < larger:
                large(groups, at, src_row, squares + row * 4, weights, to, dst_row, terms, factors, offsets, count, beside,
                      other_row, weight, low, high, plus)  # fmt: skip
                row += HEIGHT
            else:
                less(groups, at, src_row, squares + row * 4, weights, to, dst_row, terms, factors, offsets, count, beside,
                     other_row, weight, low, high, plus)  # fmt: skip
                row += HEIGHT - 1

    return multiply


def _make_tile(shape: IntegerTile, height: int) -> Any:
    """Return the intrinsic that computes a tile of ``height`` rows."""

    @intrinsic
    def tile(
        _: Any, groups: Any, src: Any, step: Any, squares: Any, weights: Any, dst: Any, dst_step: Any, terms: Any,
        factor: Any, offset: Any, count: Any, residual: Any, residual_step: Any, weight: Any, lower: Any, upper: Any,
        point: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            groups, src, step, squares, weights, *stored = a
            none = I64(0)
            dst, dst_step, terms, *others = stored
            start = b.load(pointer(b, terms, VI), align=64)
            starts = [
                b.add(start, splat(b, b.load(pointer(b, b.add(squares, I64(4 * row)), I32), align=4)))
                for row in range(height)
            ]
            sums = emit_crossed(b, shape.bits, starts, groups, src, step, weights)
            arguments = TileArguments._make([*[none] * 8, dst, dst_step, none, *others, none, None])
            emit_stores(b, shape, arguments, sums)
            return context.get_dummy_value()

        kinds = [*[types.int64] * 13, types.float32, types.float32, types.float32, types.int64]
        return types.void(*kinds), emit

    return tile


def emit_crossed(
    b: Builder, bits: int, starts: list[Value], groups: Value, src: Value, step: Value, weights: Value,
    ahead: tuple[Value, int] | None = None,
) -> list[Value]:  # fmt: skip
    """Return ``starts`` plus the sums of products of rows ``step`` bytes apart by the weights of 16 outputs, both in 16 bits.

    With each group of four inputs, so many bytes are asked for from an address ``ahead`` on.
    """
    before = b.block
    loop, done = b.append_basic_block("group"), b.append_basic_block("store")
    b.branch(loop)
    b.position_at_end(loop)
    number = b.phi(I64)
    number.add_incoming(I64(0), before)
    sums = [b.phi(VI) for _ in starts]
    for value, start in zip(sums, starts, strict=True):
        value.add_incoming(start, before)
    near, far = (
        b.load(pointer(b, b.add(weights, b.add(b.mul(number, I64(2 * WIDTH)), I64(at))), _WORDS), align=64)
        for at in (0, WIDTH)
    )
    base = pointer(b, b.add(src, b.mul(number, I64(8))), I8)
    if ahead is not None:
        emit_prefetch(b, b.add(ahead[0], b.mul(number, I64(ahead[1]))), 3)
    new = []
    for row, value in enumerate(sums):
        at = b.gep(base, [b.mul(step, I64(row))])
        first, second = (
            b.bitcast(splat(b, b.load(b.bitcast(b.gep(at, [I64(place)]), I32.as_pointer()), align=4)), _WORDS)
            for place in (0, 4)
        )
        factors = (b.bitcast(b.add(x, y), VI) for x, y in ((first, far), (second, near)))
        new.append(multiply_groups(b, "pairs", bits, value, *factors))
    following = b.add(number, I64(1))
    for phi, value in zip((number, *sums), (following, *new), strict=True):
        phi.add_incoming(value, loop)
    b.cbranch(b.icmp_signed("<", following, groups), loop, done)
    b.position_at_end(done)
    return new
