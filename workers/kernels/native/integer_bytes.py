"""Product of many rows of 8-bit integers by ``vpmaddubsw``; in pairs of 16 bits if these do not hold sums of two products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .compiler import types
from .integer_bounds import make_bounds
from .integer_dot import register_bits
from .integer_tile import SIZES, IntegerTile, make_integer_tile
from .integers import load_s32

#: Rows of a tile: the sums of two vectors each, weights, a factor and ones are in registers. Others have one row less.
HEIGHT: Final = 5


def make(isa: str, dtype: str, residual: str, exact: bool, part: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel; ``dtype`` and ``residual`` (nothing: none) are data types of dst and of what is added.

    ``part`` if the outputs are no whole blocks of 16.

    Arguments, sizes in bytes unless said otherwise: addresses of src in bytes without sign, of the same in 16 bits, of weights,
    of what `integer_fits` wrote of them, of dst, residual, terms (s32), factors and offsets (f32, one an output, filled up to
    whole blocks), and of scale (f32) and zero point (s32) of dst (0: none); the table of steps of either form (offset, groups);
    then rows, at least 16, blocks of 16 outputs, strips of rows, and outputs; the distances from row to row of src in bytes and
    in 16 bits, of dst and residual, and from block to block of weights; and as floats the residual's factor and the bounds of
    the result before scale and zero point of dst. One item of work is a strip of rows for a block.
    """
    bits = register_bits(isa)

    def tile(how: str, height: int) -> Any:
        return make_integer_tile(IntegerTile(how, bits, (height,), 1, dtype, residual, exact, part, "s8"))

    bytes_large, bytes_less, pairs_large, pairs_less = (
        tile(how, height) for how in ("bytes", "pairs") for height in (HEIGHT, HEIGHT - 1)
    )
    size, other_size = SIZES[dtype], SIZES.get(residual, 0)
    bounds = make_bounds(dtype)

    def product(
        begin: int, end: int, src: int, wide: int, weights: int, fits: int, pairs: int, dst: int, other: int, terms: int,
        factors: int, offsets: int, scale: int, zero_point: int, steps: int, rows: int, blocks: int, strips: int,
        outputs: int, src_row: int, wide_row: int, dst_row: int, other_row: int, block_bytes: int, weight: float, low: float,
        high: float,
    ) -> None:  # fmt: skip
        factor32, low32, high32, plus = bounds(scale, zero_point, weight, low, high)
        tiles = (rows + HEIGHT - 1) // HEIGHT
        less = rows // tiles
        more = rows % tiles
        for item in range(begin, end):
            block = item % blocks
            strip = item // blocks
            count = outputs - block * 16
            number = block * 64
            for tile_number in range(tiles * strip // strips, tiles * (strip + 1) // strips):
                row = tile_number * less + min(tile_number, more)
                large = less == HEIGHT or tile_number < more
                to = dst + row * dst_row + block * 16 * size
                beside = other + row * other_row + block * 16 * other_size
                if load_s32(fits + block * 4) != 0:
                    at, factor = src + row * src_row, weights + block * block_bytes
                    if large:
                        bytes_large(1, steps, at, 0, src_row, factor, 0, 0, to, dst_row, terms + number, factors + number,
                                    offsets + number, count, beside, other_row, factor32, low32, high32, plus, 0, 0)  # fmt: skip
                    else:
                        bytes_less(1, steps, at, 0, src_row, factor, 0, 0, to, dst_row, terms + number, factors + number,
                                   offsets + number, count, beside, other_row, factor32, low32, high32, plus, 0, 0)  # fmt: skip
                else:
                    at, factor = wide + row * wide_row, pairs + block * block_bytes
                    if large:
                        pairs_large(1, steps + 16, at, 0, wide_row, factor, 0, 0, to, dst_row, terms + number, factors + number,
                                    offsets + number, count, beside, other_row, factor32, low32, high32, plus, 0, 0)  # fmt: skip
                    else:
                        pairs_less(1, steps + 16, at, 0, wide_row, factor, 0, 0, to, dst_row, terms + number, factors + number,
                                   offsets + number, count, beside, other_row, factor32, low32, high32, plus, 0, 0)  # fmt: skip

    return product, types.void(*[types.int64] * 24, *[types.float64] * 3)
