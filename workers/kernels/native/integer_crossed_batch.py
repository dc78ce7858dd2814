"""Products of a batch of matrices of 8-bit integers as `integer_crossed`: right matrices are packed in 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import types
from .integer_bounds import make_bounds
from .integer_crossed import make_rows
from .integer_crossed_weights import make_subtract
from .integer_dot import register_bits
from .integer_tile import SIZES
from .stack_room import stack_room
from .vec import WIDTH, iload


def make(isa: str, dtype: str, residual: str, exact: bool, part: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel; ``dtype`` and ``residual`` (nothing: none) are data types of dst and of what is added.

    ``part`` if columns are no whole blocks of 16.

    Arguments, distances in bytes: addresses of the left matrices in 16 bits, of the products of their rows (s32), of the packed
    right ones, dst, residual, what the sums of columns begin with (s32, one for each of each right matrix), factors and offsets
    (f32, one a column), and scale (f32) and zero point (s32) of dst (0: none); the table of products (numbers of the left and the
    right matrix); strips of at least six rows, blocks of 16 columns, columns, rows, and groups of four inputs; the distance from
    row to row of the left side; and as floats the residual's factor and the bounds of the result before scale and zero point
    of dst. One item of work is a strip of rows for a block of columns of one product.
    """
    bits = register_bits(isa)
    multiply, subtract, room = make_rows(bits, dtype, residual, exact, part), make_subtract(bits), stack_room(WIDTH)
    size, other_size = SIZES[dtype], SIZES.get(residual, 0)
    bounds = make_bounds(dtype)

    def product(
        begin: int, end: int, src: int, squares: int, weights: int, dst: int, other: int, terms: int, factors: int,
        offsets: int, scale: int, zero_point: int, pairs: int, strips: int, blocks: int, columns: int, rows: int,
        groups: int, row: int, weight: float, low: float, high: float,
    ) -> None:  # fmt: skip
        factor32, low32, high32, plus = bounds(scale, zero_point, weight, low, high)
        line, other_line, own_terms = columns * size, columns * other_size, room()
        for item in range(begin, end):
            block = item % blocks
            strip = (item // blocks) % strips
            number = item // (blocks * strips)
            left, right = iload(pairs + number * 16), iload(pairs + number * 16 + 8)
            packed = weights + (right * blocks + block) * groups * 128
            subtract(groups, packed, terms + (right * blocks + block) * 64, own_terms)
            multiply(rows * strip // strips, rows * (strip + 1) // strips, src + left * rows * row, row,
                     squares + left * rows * 4, packed, groups, 0, 0, dst + number * rows * line + block * 16 * size, line,
                     own_terms, factors + block * 64, offsets + block * 64, columns - block * 16,
                     other + number * rows * other_line + block * 16 * other_size, other_line, factor32, low32, high32,
                     plus)  # fmt: skip

    return product, types.void(*[types.int64] * 19, *[types.float64] * 3)
