"""Products of many rows of 8-bit integers as `integer_crossed`, which widen a strip of rows at a time.

A strip stays in the second-level cache. A copy of all rows in 16 bits would be written to a far cache and read from there twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_bounds import make_bounds
from .integer_copy import same_number
from .integer_crossed import make_rows
from .integer_crossed_rows import swapped_products, total_once
from .integer_crossed_weights import make_widen
from .integer_dot import register_bits
from .integer_tile import SIZES
from .integers import load_s32, store_s32
from .limits import STRIP_BYTES, STRIP_GROUPS, STRIP_INPUTS
from .point_limits import LEAST_POINT, MOST_POINT
from .stack_room import stack_room
from .vec import I8, I16, I64, LANES, VI, WIDTH, Builder, Value, pointer

#: Bytes of a row that are widened at once, and the same in 16 bits.
_NARROW, _WORDS = ir.VectorType(I8, STRIP_INPUTS), ir.VectorType(I16, STRIP_INPUTS)


def make(
    isa: str, signed: bool, dtype: str, residual: str, exact: bool, part: bool, kind: str
) -> tuple[Callable[..., None], Any]:  # fmt: skip
    """Return the kernel of src with a sign or without; the other parameters are those of `integer_crossed`.

    Arguments, sizes in bytes unless said otherwise: addresses of src, of its zero point (s32; 0: none), of weights in pairs, of
    dst, residual, terms (s32), factors and offsets (f32, one an output, filled up to whole blocks), and of scale (f32) and zero
    point (s32) of dst (0: none); rows, strips of at least six rows, blocks of 16 outputs, outputs, and groups of four inputs,
    a multiple of 8; lines of an image and rows of a line; the distances from image to image, from line to line and from row to
    row of src; those from row to row of dst and residual; and as floats the residual's factor and the bounds of the result before
    scale and zero point of dst. One item of work is a strip of rows, for all outputs.
    """
    bits = register_bits(isa)
    multiply = make_rows(bits, dtype, residual, exact, part)
    widen, widen_row = make_widen(bits, kind, 2), _make_widen_row(bits, signed)
    row_room, square_room = stack_room(STRIP_BYTES), stack_room(STRIP_BYTES // STRIP_INPUTS * 2)
    weight_room, term_room = stack_room(STRIP_GROUPS * 2 * WIDTH), stack_room(WIDTH)
    size, other_size = SIZES[dtype], SIZES.get(residual, 0)
    bounds = make_bounds(dtype)

    def product(
        begin: int, end: int, src: int, point: int, weights: int, dst: int, other: int, terms: int, factors: int,
        offsets: int, scale: int, zero_point: int, rows: int, strips: int, blocks: int, outputs: int, groups: int, lines: int,
        columns: int, image: int, down: int, across: int, dst_row: int, other_row: int, weight: float, low: float, high: float,
    ) -> None:  # fmt: skip
        factor32, low32, high32, plus = bounds(scale, zero_point, weight, low, high)
        less = 0
        if point != 0:
            less = max(LEAST_POINT, min(MOST_POINT, load_s32(point)))
        wide_rows, squares, wide, own_terms = row_room(), square_room(), weight_room(), term_room()
        for item in range(begin, end):
            first, count = rows * item // strips, rows * (item + 1) // strips - rows * item // strips
            for row in range(count):
                line, column = (first + row) // columns, (first + row) % columns
                at = src + line // lines * image + line % lines * down + column * across
                store_s32(squares + row * 4, -widen_row(groups // 8, at, wide_rows + row * groups * 8, less))
            # Ask for the next strip meanwhile.
            line, column, lines_ahead = (first + count) // columns, (first + count) % columns, 0
            ahead = src + line // lines * image + line % lines * down + column * across
            if item + 1 < strips:
                lines_ahead = count * across // 64
            to, beside = dst + first * dst_row, other + first * other_row
            for block in range(blocks):
                number = block * 64
                widen(groups, weights + block * groups * 64, wide, terms + number, own_terms)
                asked = lines_ahead * block // blocks
                multiply(0, count, wide_rows, groups * 8, squares, wide, groups, ahead + asked * 64,
                         lines_ahead * (block + 1) // blocks - asked, to + block * 16 * size, dst_row, own_terms,
                         factors + number, offsets + number, outputs - block * 16, beside + block * 16 * other_size,
                         other_row, factor32, low32, high32, plus)  # fmt: skip

    return product, types.void(*[types.int64] * 24, *[types.float64] * 3)


def _make_widen_row(bits: int, signed: bool) -> Any:
    """Return the intrinsic that widens a row less a number, and returns the products that `integer_crossed_rows` sums.

    Arguments: vectors of numbers, one at least; addresses of the row and of its copy; the number.
    """

    @intrinsic
    def widen_row(_: Any, vectors: Any, at: Any, to: Any, less: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            vectors, at, to, less = a
            minus = same_number(b, less, _WORDS)
            before = b.block
            loop, done = b.append_basic_block("vector"), b.append_basic_block("done")
            b.branch(loop)
            b.position_at_end(loop)
            number, total = b.phi(I64), b.phi(VI)
            narrow = b.load(pointer(b, b.add(at, b.mul(number, I64(STRIP_INPUTS))), _NARROW), align=1)
            words = b.sub((b.sext if signed else b.zext)(narrow, _WORDS), minus)
            b.store(words, pointer(b, b.add(to, b.mul(number, I64(2 * STRIP_INPUTS))), _WORDS), align=64)
            new = swapped_products(b, bits, total, b.bitcast(words, VI))
            following = b.add(number, I64(1))
            for phi, first, value in ((number, I64(0), following), (total, ir.Constant(VI, [0] * LANES), new)):
                phi.add_incoming(first, before)
                phi.add_incoming(value, loop)
            b.cbranch(b.icmp_signed("<", following, vectors), loop, done)
            b.position_at_end(done)
            return total_once(b, new)

        return types.int64(*[types.int64] * 4), emit

    return widen_row
