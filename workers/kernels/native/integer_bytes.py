"""Product of many rows of 8-bit integers by ``vpmaddubsw``; as `integer_crossed` if 16 bits do not hold sums of two products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .compiler import types
from .integer_bounds import make_bounds
from .integer_crossed import make_rows
from .integer_crossed_weights import make_widen
from .integer_dot import register_bits
from .integer_tile import SIZES, IntegerTile, make_integer_tile
from .integers import load_s32
from .limits import CROSSED_GROUPS
from .stack_room import stack_room
from .vec import WIDTH

#: Rows of a tile: the sums of two vectors each, weights, a factor and ones are in registers. Others have one row less.
HEIGHT: Final = 5


def make(isa: str, dtype: str, residual: str, exact: bool, part: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel; ``dtype`` and ``residual`` (nothing: none) are data types of dst and of what is added.

    ``part`` if the outputs are no whole blocks of 16.

    Arguments, sizes in bytes unless said otherwise: addresses of src in bytes without sign, of the same in 16 bits, of the
    products of its rows (s32), of weights, of what `integer_fits` wrote of them, of dst, residual, terms (s32), factors and
    offsets (f32, one an output, filled up to whole blocks), and of scale (f32) and zero point (s32) of dst (0: none); the step
    of bytes (offset, groups); then rows, at least 16, blocks of 16 outputs, strips of rows, at least 6 of a strip, outputs, and
    groups of four inputs; the distances from row to row of src in bytes and in 16 bits, of dst and residual; and as floats the
    residual's factor and the bounds of the result before scale and zero point of dst. One item of work is a strip of rows for a
    block.
    """
    bits = register_bits(isa)

    def tile(height: int) -> Any:
        return make_integer_tile(IntegerTile("bytes", bits, (height,), 1, dtype, residual, exact, part, "s8"))

    large, less = tile(HEIGHT), tile(HEIGHT - 1)
    multiply = make_rows(bits, dtype, residual, exact, part)
    widen, weight_room, term_room = make_widen(bits, "s8", 4), stack_room(CROSSED_GROUPS * 2 * WIDTH), stack_room(WIDTH)
    size, other_size = SIZES[dtype], SIZES.get(residual, 0)
    bounds = make_bounds(dtype)

    def product(
        begin: int, end: int, src: int, wide: int, squares: int, weights: int, fits: int, dst: int, other: int, terms: int,
        factors: int, offsets: int, scale: int, zero_point: int, steps: int, rows: int, blocks: int, strips: int,
        outputs: int, groups: int, src_row: int, wide_row: int, dst_row: int, other_row: int, weight: float, low: float,
        high: float,
    ) -> None:  # fmt: skip
        factor32, low32, high32, plus = bounds(scale, zero_point, weight, low, high)
        tiles = (rows + HEIGHT - 1) // HEIGHT
        least = rows // tiles
        more = rows % tiles
        wide_weights, own_terms = weight_room(), term_room()
        for item in range(begin, end):
            block = item % blocks
            strip = item // blocks
            count = outputs - block * 16
            number = block * 64
            factor = weights + block * groups * 64
            first_tile, end_tile = tiles * strip // strips, tiles * (strip + 1) // strips
            to, beside = dst + block * 16 * size, other + block * 16 * other_size
            if load_s32(fits + block * 4) == 0:
                widen(groups, factor, wide_weights, terms + number, own_terms)
                multiply(first_tile * least + min(first_tile, more), end_tile * least + min(end_tile, more), wide, wide_row,
                         squares, wide_weights, groups, factor + groups * 64, groups, to, dst_row, own_terms,
                         factors + number, offsets + number, count, beside, other_row, factor32, low32, high32, plus)  # fmt: skip
            else:
                for tile_number in range(first_tile, end_tile):
                    row = tile_number * least + min(tile_number, more)
                    at, to_row, beside_row = src + row * src_row, to + row * dst_row, beside + row * other_row
                    if least == HEIGHT or tile_number < more:
                        large(1, steps, at, 0, src_row, factor, 0, 0, to_row, dst_row, terms + number, factors + number,
                              offsets + number, count, beside_row, other_row, factor32, low32, high32, plus, 0, 0)  # fmt: skip
                    else:
                        less(1, steps, at, 0, src_row, factor, 0, 0, to_row, dst_row, terms + number, factors + number,
                             offsets + number, count, beside_row, other_row, factor32, low32, high32, plus, 0, 0)  # fmt: skip

    return product, types.void(*[types.int64] * 24, *[types.float64] * 3)
