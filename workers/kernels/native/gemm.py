"""Matrix product of rows, in place or packed, and packed or row-major columns into a row-major destination, batched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .compiler import types
from .reduce_tile import make_tiles
from .tile_shape import NO_RESIDUAL, OPEN, TileShape
from .transpose import transpose, transpose_pad
from .vec import iload, prefetch, vload, vload_part, vstore

#: Rows of the right matrix that are packed together.
_SLAB: Final = 8
#: ISA level -> items of work whose columns are packed together, from longer pieces of each row; 1 on others.
_TOGETHER: Final = {"x86-64-v3": 4}
#: Rows between those that are packed and those that are asked for meanwhile: of items together, and of one.
_AHEAD: Final = 8
_FAR: Final = 24
#: ISA level -> what tiles ask for; weights on others. A tile of few inputs would wait for its lines of dst.
_ASKS: Final = {"x86-64-v3": "dst"}


def make(
    isa: str, heights: tuple[int, ...], blocks: int, rows: bool, packs: str, rest: int = 1, far: bool = False
) -> tuple[Callable[..., None], Any]:
    """Return the kernel for tiles of the ``heights`` in rows, and ``blocks`` vectors of 16 columns.

    Parts with fewer vectors have tiles of ``rest`` vectors, of which their number must be a multiple.

    With ``rows``, the inputs of a row of the left matrix are adjacent; else those of a tile's rows are. ``packs`` says
    which elements of the right matrix are adjacent, those of "rows" or of "columns", if each item of work packs the
    columns that it multiplies; "" if it reads them where they are. With ``far``, these are asked for before they are read.

    Arguments, distances in bytes: addresses of the left matrix, the right one, bias (0: none), dst, residual (0: none);
    a table of (left, right, dst) offsets of each product of the batch, and the step (0, K, 0) of a tile; then the tiles
    of a product, the rows of the first ones, and how many these are: the others have a row less; columns of dst and strips of
    tiles; the distances left_row, left_lane and left_lane_less (from one input to the next in a first tile and in one with a
    row less; without ``rows``), right_block (from 16 columns to the next 16),
    right_row (from one k to the next), right_column (from one column to the next), dst_row; the address of room for the
    packed columns of each item; 1 to read whole cache lines of rows that begin in the same place of one, else 0: then
    parts may be one more, or with ``packs``, columns that begin with a line are not packed; and the lower bounds before and
    after the residual is added. One item of work is a strip of tiles, as many as in any other or one less, for ``blocks``
    vectors of columns of one product.
    """
    together = _TOGETHER.get(isa, 1) if packs == "rows" else 1
    in_lines = packs == "rows" and isa not in _TOGETHER
    pack = _pack_columns if packs == "columns" else _pack_rows
    if in_lines:
        pack = _pack_lines(blocks)
    asks = _ASKS.get(isa, "weights" if far else "")
    asks_ahead = asks == "weights"
    wide, narrow = (
        make_tiles({height: _shape(height, width, rows, asks) for height in heights}) for width in (blocks, rest)
    )

    def gemm(
        begin: int, end: int, left: int, right: int, bias: int, dst: int, residual: int, batch_table: int, step: int,
        tiles: int, height: int, large: int, columns: int, strips: int, left_row: int, left_lane: int,
        left_lane_less: int, right_block: int, right_row: int, right_column: int, dst_row: int, room: int, aligns: int,
        low: float, bound: float,
    ) -> None:  # fmt: skip
        leads = aligns
        if packs:
            leads = 0
        parts = ((columns + 15 * leads + 15) // 16 + blocks - 1) // blocks
        to_residual = residual - dst
        if residual == 0:
            to_residual = NO_RESIDUAL
        low32 = np.float32(low)
        bound32 = np.float32(bound)
        K = iload(step + 8)
        # Ranges do not overlap, so all items of one use the room of the first. Packed columns are a line more than K lines
        # apart: lines at multiples of 4 KiB compete for the same places in the first-level cache.
        packed = room + begin * blocks * (K * 64 + 64)
        block, lane = right_block, right_row
        if packs:
            block, lane = K * 64 + 64, 64
        start = ready = begin
        for item in range(begin, end):
            part = item % parts
            strip = (item // parts) % strips
            product = batch_table + item // (parts * strips) * 24
            matrix = right + iload(product + 8)
            # Columns before the first line of the cache that begins with a whole vector.
            lead = leads * ((matrix & 63) >> 2)
            first = part * blocks * 16 - lead
            factors = matrix + first // 16 * right_block + first % 16 * right_column
            source = left + iload(product)
            target = dst + iload(product + 16)
            vectors = min(blocks, (columns - first + 15) // 16)
            width = blocks
            if blocks > 1 and (vectors < blocks or first < 0):
                width = rest
            if in_lines:
                if aligns == 0 or factors & 63 != 0:
                    pack(factors, packed, K, columns - first, vectors, right_row, right_column)
                    factors, block, lane = packed, 64, blocks * 64
                else:
                    block, lane = right_block, right_row
            elif packs:
                if item >= ready:
                    items = min(together, end - item, parts - part)
                    panels = min(items * blocks, (columns - first + 15) // 16)
                    pack(factors, packed, K, columns - first, panels, right_row, right_column)
                    start, ready = item, item + items
                factors = packed + (item - start) * blocks * block
            first_tile, end_tile = strip * tiles // strips, (strip + 1) * tiles // strips
            # A lone tile reads as much as it would ask for.
            asks_now = asks_ahead and part + 1 < parts and first_tile + 1 < end_tile
            for number in range(first_tile, end_tile):
                row = number * height - max(0, number - large)
                # The first tiles ask for the columns of the next part, a vector each: these come from far.
                ahead = 0
                if asks_now and number - first_tile < blocks:
                    ahead = (blocks + number - first_tile) * block
                less = int(number >= large)
                lane_step = left_lane
                if less:
                    lane_step = left_lane_less
                at = source + row * left_row
                onto = target + row * dst_row
                for j in range(0, vectors, width):
                    column = first + j * 16
                    at_right = factors + j * block
                    count = columns - column
                    if column < 0:
                        count = min(columns, column + 16)
                        at_right -= column * right_column
                        column = 0
                    biases = bias + column * 4
                    biased = count
                    if bias == 0:
                        # Any memory: processors take hundreds of cycles to load no lanes from where there is none.
                        biases = step
                        biased = 0
                    to = onto + column * 4
                    if width == blocks:
                        wide(height - less, 1, step, at, left_row, at_right, block, lane, ahead, to, 64, dst_row,
                             lane_step, biases, biased, count, to_residual, low32, bound32)  # fmt: skip
                    else:
                        narrow(height - less, 1, step, at, left_row, at_right, block, lane, 0, to, 64, dst_row,
                               lane_step, biases, biased, count, to_residual, low32, bound32)  # fmt: skip

    return gemm, types.void(*[types.int64] * 23, types.float64, types.float64)


def _pack_rows(src: int, to: int, K: int, columns: int, vectors: int, row: int, column: int) -> None:
    whole = min(vectors, columns // 16)
    block = K * 64 + 64
    slabs = K // _SLAB * _SLAB
    for first in range(0, slabs, _SLAB):
        at, onto = src + first * row, to + first * 64
        for j in range(whole):
            # Rows are in different pages, which the processor does not foresee.
            for k in range(_SLAB):
                prefetch(at + (k + _AHEAD) * row + j * 64)
            for k in range(_SLAB):
                vstore(onto + j * block + k * 64, vload(at + k * row + j * 64))
    for k in range(slabs, K):
        for j in range(whole):
            vstore(to + j * block + k * 64, vload(src + k * row + j * 64))
    if whole < vectors:
        for k in range(K):
            vstore(to + whole * block + k * 64, vload_part(src + k * row + whole * 64, columns - whole * 16))


def _pack_lines(blocks: int) -> Callable[..., None]:
    """Return what packs the vectors of a row side by side, in the order in which a tile reads them."""

    def pack(src: int, to: int, K: int, columns: int, vectors: int, row: int, column: int) -> None:
        whole = min(vectors, columns // 16)
        for k in range(K):
            at, onto = src + k * row, to + k * blocks * 64
            if whole == blocks:
                for j in range(blocks):
                    prefetch(at + _FAR * row + j * 64)
                for j in range(blocks):
                    vstore(onto + j * 64, vload(at + j * 64))
            else:
                for j in range(whole):
                    vstore(onto + j * 64, vload(at + j * 64))
                if whole < vectors:
                    vstore(onto + whole * 64, vload_part(at + whole * 64, columns - whole * 16))

    return pack


def _pack_columns(src: int, to: int, K: int, columns: int, vectors: int, row: int, column: int) -> None:
    for j in range(vectors):
        at, packed = src + j * 16 * column, to + j * (K * 64 + 64)
        count = min(16, columns - j * 16)
        whole = 0
        if count == 16:
            whole = K // 16 * 16
        for k in range(0, whole, 16):
            transpose(at + k * 4, column, packed + k * 64, 64)
        for k in range(whole, K, 16):
            transpose_pad(at + k * 4, column, packed + k * 64, 64, count, min(16, K - k))


def _shape(positions: int, blocks: int, rows: bool, asks: str) -> TileShape:
    if rows:
        return TileShape((1,) * positions, blocks, 4, 4, "keep", asks=asks)
    return TileShape((positions,), blocks, 4, OPEN, "keep", asks=asks)
