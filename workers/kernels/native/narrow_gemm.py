"""Matrix product of rows of floats by columns of f16 or bf16, which become floats just before they are multiplied, batched.

Sums are in float32. Each item of work converts the columns that it multiplies into room that the caches hold: reading
them from memory takes half the time of floats, and converting them as long as multiplying two or three rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...desc.data_type import item_size
from .compiler import types
from .narrow_columns import make_columns
from .narrow_results import make_results
from .reduce_tile import make_tiles
from .tile_shape import NO_RESIDUAL, TileShape
from .vec import iload, vset


def make(
    isa: str, heights: tuple[int, ...], blocks: int, order: str, right: str, bias: str, dst: str
) -> tuple[Callable[..., None], Any]:
    """Return the kernel for tiles of the ``heights`` in rows, and ``blocks`` vectors of 16 columns.

    ``order`` is that of `make_columns`; ``right``, ``bias`` ("": none) and ``dst`` are data types.

    Arguments, distances in bytes: addresses of the left matrix (float32, inputs of a row adjacent), the right one, bias,
    dst, residual (0: none, else of dst's type and layout); a table of (left, right, dst) offsets of each product of the batch,
    and the step (0, K, 0) of a tile; tiles of a product, the rows of the first ones, and how many these are: the others have
    a row less; columns of dst, strips of tiles, and the parts of ``blocks`` vectors that an item of work computes; the
    distances left_row, right_block (from 16 columns to the next 16), right_row (from one k to the next), right_column
    (from one column to the next); the address of each item's room and its bytes; the address of sums in float32 and the
    distance from row to row (0: each item has a tile of them in its room), and from product to product; whether the sums are
    those of the first inputs, and of the last; and the lower bounds before and after the residual is added.
    One item of work is a strip of tiles for some parts of one product.
    """
    convert, write = make_columns(right, order), make_results(bias, dst)
    wide, narrow = (
        make_tiles({height: TileShape((1,) * height, width, 4, 4, "none", asks="") for height in heights})
        for width in (blocks, 1)
    )
    size, bias_size, tallest = item_size(dst), item_size(bias or "f32"), max(heights)
    is_packed = order == "packed"

    def gemm(
        begin: int, end: int, left: int, factors: int, biases: int, to: int, residual: int, batch_table: int, step: int,
        tiles: int, height: int, large: int, columns: int, strips: int, group: int, left_row: int, right_block: int,
        right_row: int, right_column: int, room: int, item_room: int, sums: int, sums_row: int, sums_matrix: int,
        is_first: int, is_last: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        parts = ((columns + 15) // 16 + blocks - 1) // blocks
        groups = (parts + group - 1) // group
        to_residual = 0
        if is_first:
            to_residual = NO_RESIDUAL
        low32, before, after = np.float32(-np.inf), vset(np.float32(low)), vset(np.float32(bound))
        K = iload(step + 8)
        dst_row = columns * size
        # Ranges do not overlap, so all items of one use the room of the first.
        tile_sums = room + begin * item_room
        floats = tile_sums + tallest * blocks * 64
        for item in range(begin, end):
            number = item // (groups * strips)
            strip = item // groups % strips
            product = batch_table + number * 24
            matrix = factors + iload(product + 8)
            source = left + iload(product)
            offset = iload(product + 16)
            for part in range(item % groups * group, min(parts, (item % groups + 1) * group)):
                first = part * blocks * 16
                count = min(blocks * 16, columns - first)
                rest = (count + 15) // 16
                at_right = matrix + first * right_column
                if is_packed:
                    at_right = matrix + part * blocks * right_block
                convert(at_right, floats, K, columns - first, rest, right_block, right_row, right_column)
                for tile in range(strip * tiles // strips, (strip + 1) * tiles // strips):
                    row = tile * height - max(0, tile - large)
                    rows = height - int(tile >= large)
                    at = tile_sums
                    at_row = blocks * 64
                    if sums_row != 0:
                        at = sums + number * sums_matrix + row * sums_row + first * 4
                        at_row = sums_row
                    if rest == blocks:
                        wide(rows, 1, step, source + row * left_row, left_row, floats, K * 64, 64, 0, at, 64, at_row, 4,
                             step, 0, blocks * 16, to_residual, low32, low32)  # fmt: skip
                    else:
                        for j in range(rest):
                            narrow(rows, 1, step, source + row * left_row, left_row, floats + j * K * 64, K * 64, 64, 0,
                                   at + j * 64, 64, at_row, 4, step, 0, 16, to_residual, low32, low32)  # fmt: skip
                    if is_last:
                        place = offset + row * dst_row + first * size
                        added = residual
                        if residual != 0:
                            added = residual + place
                        write(at, at_row, 64, biases + first * bias_size, to + place, added, dst_row, rows, count,
                              before, after)  # fmt: skip

    return gemm, types.void(*[types.int64] * 26, types.float64, types.float64)
