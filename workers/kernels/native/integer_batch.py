"""Products of a batch of matrices of 8-bit integers: register tiles over the rows of each, requantized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import types
from .integer_batch_tile import make_batch_tile
from .integer_bounds import make_bounds
from .integer_dot import register_bits
from .integer_tile import SIZES, IntegerTile
from .vec import iload


def make(
    isa: str, how: str, tiles: tuple[int, ...], blocks: int, dtype: str, residual: str, exact: bool, part: bool,
    kind: str, points: bool,
) -> tuple[Callable[..., None], Any]:  # fmt: skip
    """Return the kernel for tiles of one or two numbers of rows; ``blocks`` of 16 columns are computed at once.

    ``dtype`` and ``residual`` (nothing: none) are data types of dst and of what is added; ``part`` if columns are no whole
    blocks; ``kind`` is the data type of the right side as tiles read it. With ``points``, sums of rows begin with something, too.

    Arguments, distances in bytes: addresses of the left matrices, the packed right ones, dst, residual, what the sums of
    columns (s32, one for each of each right matrix) and of rows (s32, of each left one) begin with, factors and offsets (f32,
    one a column), and scale (f32) and zero point (s32) of dst (0: none); the tables of products (numbers of the left and the
    right matrix), of steps (as tiles read them), of tiles (kind, first row) and of strips (first tile of each, and the end);
    strips, blocks of 16 columns, columns and rows; the distances from row to row of the left side and from block to block of
    the right one; and as floats the residual's factor and the bounds of the result before scale and zero point of dst.
    One item of work is a strip of tiles for ``blocks`` blocks of columns of one product.
    """
    bits = register_bits(isa)

    def tile(rows: int, count: int) -> Any:
        shape = IntegerTile(how, bits, (rows,), count, dtype, residual, exact, part, kind)
        return make_batch_tile(shape, points)

    wide_first, wide_second, single_first, single_second = (
        tile(rows, count) for count in (blocks, 1) for rows in (tiles[0], tiles[-1])
    )
    size, other_size = SIZES[dtype], SIZES.get(residual, 0)
    bounds = make_bounds(dtype)

    def product(
        begin: int, end: int, src: int, weights: int, dst: int, other: int, terms: int, row_terms: int, factors: int,
        offsets: int, scale: int, zero_point: int, pairs: int, steps: int, tile_table: int, strip_table: int,
        strips: int, all_blocks: int, columns: int, rows: int, row: int, block_bytes: int, weight: float, low: float,
        high: float,
    ) -> None:  # fmt: skip
        passes = (all_blocks + blocks - 1) // blocks
        factor32, low32, high32, plus = bounds(scale, zero_point, weight, low, high)
        line, other_line = columns * size, columns * other_size
        for item in range(begin, end):
            block = item % passes * blocks
            strip = (item // passes) % strips
            number = item // (passes * strips)
            left, right = iload(pairs + number * 16), iload(pairs + number * 16 + 8)
            channel, rest = block * 16, min(blocks, all_blocks - block)
            packed = weights + (right * all_blocks + block) * block_bytes
            first = terms + (right * all_blocks + block) * 64
            for at in range(iload(strip_table + strip * 8), iload(strip_table + strip * 8 + 8)):
                is_second = iload(tile_table + at * 16) != 0
                position = iload(tile_table + at * 16 + 8)
                source = src + (left * rows + position) * row
                to = dst + (number * rows + position) * line + channel * size
                beside = other + (number * rows + position) * other_line + channel * other_size
                mine = row_terms + (left * rows + position) * 4
                if rest == blocks:
                    if is_second:
                        wide_second(1, steps, source, 0, row, packed, block_bytes, 0, to, line, first,
                                    factors + block * 64, offsets + block * 64, columns - channel, beside, other_line,
                                    factor32, low32, high32, plus, mine)  # fmt: skip
                    else:
                        wide_first(1, steps, source, 0, row, packed, block_bytes, 0, to, line, first,
                                   factors + block * 64, offsets + block * 64, columns - channel, beside, other_line,
                                   factor32, low32, high32, plus, mine)  # fmt: skip
                else:
                    for j in range(rest):
                        own = (block + j) * 64
                        if is_second:
                            single_second(1, steps, source, 0, row, packed + j * block_bytes, block_bytes, 0,
                                          to + j * 16 * size, line, first + j * 64, factors + own, offsets + own,
                                          columns - channel - j * 16, beside + j * 16 * other_size, other_line,
                                          factor32, low32, high32, plus, mine)  # fmt: skip
                        else:
                            single_first(1, steps, source, 0, row, packed + j * block_bytes, block_bytes, 0,
                                         to + j * 16 * size, line, first + j * 64, factors + own, offsets + own,
                                         columns - channel - j * 16, beside + j * 16 * other_size, other_line,
                                         factor32, low32, high32, plus, mine)  # fmt: skip

    return product, types.void(*[types.int64] * 22, *[types.float64] * 3)
