"""Batch-reduce convolution in chunks of inputs: the weights of a chunk stay in the first-level cache for all tiles.

A tile of `conv` reads all weights of its outputs; those of many inputs do not fit in a small cache. Here a chunk of the
inputs is summed for all outputs before the next chunk, as products of matrices are. A tile is a number of neighbouring
outputs, of any rows; the images of a batch follow each other. Wide tiles compute a block and a second one of at most 8 outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .conv_tile import LINES, make_position_tile
from .tile_shape import NO_RESIDUAL
from .vec import iload


def make(
    isa: str, positions: int, ragged: bool, at_once: int = 4, wide: bool = False
) -> tuple[Callable[..., None], Any]:
    """Return the kernel for tiles of ``positions``, and of one less; ``ragged`` zeroes the lanes behind the last channel.

    It is for any steps, and best for those of which each has a multiple of ``at_once`` lanes. With ``wide`` tiles there
    is one group of one part, whose second block has 8 channels at most.

    Arguments of the kernel, sizes in bytes unless said otherwise: addresses of src, weights, bias (0: none), dst and
    residual (0: none); the tables ``steps`` (source offset, lanes, weights to skip), ``chunk_table`` (for each chunk where its
    steps begin, their number, where its weights begin, and their size, 0 if rows are apart) and ``strip_table`` (first tile of
    each strip, and the end; tiles of all images are counted); then chunks, ``span`` (items of work that are computed chunk by
    chunk), strips, groups, output blocks a group, channels a group, tiles of an image and how many of them are large; columns
    of a row of outputs; slabs of an item of the batch, of which each counts as an image, and the bytes from slab to slab
    in src and in dst; the strides src_batch, src_group, src_row (from row to row of outputs), src_step (from column to column),
    weight_group, weight_block, weight_row, dst_batch and dst_block; whether sums begin with the residual (1) or end with it
    (0); and the lower bounds applied before and after the residual is added (-inf: none; without a residual only the second
    counts). Several chunks need 1 or no residual.
    One item of work is a strip of tiles for one output block of one group.
    """
    large_tile, small_tile = (
        make_position_tile(count, ragged, at_once=at_once, wide=wide) for count in (positions, max(1, positions - 1))
    )

    def conv_chunks(
        begin: int, end: int, src: int, weights: int, bias: int, dst: int, residual: int, steps: int, chunk_table: int,
        strip_table: int, chunks: int, span: int, strips: int, groups: int, parts: int, channels: int, tiles: int,
        large: int, width: int, slabs: int, src_slab: int, dst_slab: int, src_batch: int, src_group: int, src_row: int,
        src_step: int, weight_group: int, weight_block: int, weight_row: int, dst_batch: int, dst_block: int, early: int,
        low: float, bound: float,
    ) -> None:  # fmt: skip
        low32 = np.float32(low)
        bound32 = np.float32(bound)
        to_start = NO_RESIDUAL
        to_residual = NO_RESIDUAL
        if residual != 0:
            if early != 0:
                to_start = residual - dst
            else:
                to_residual = residual - dst
        wrap = src_row - width * src_step
        at = begin
        while at < end:
            until = min(end, (at // span + 1) * span)
            for chunk in range(chunks):
                chunk_at = chunk_table + chunk * 32
                own = steps + iload(chunk_at)
                T = iload(chunk_at + 8)
                size = iload(chunk_at + 24)
                is_first = 0
                if chunk == 0:
                    is_first = 1
                is_last = 0
                if chunk == chunks - 1:
                    is_last = 1
                for item in range(at, until):
                    part = item % parts
                    strip = (item // parts) % strips
                    group = item // (parts * strips)
                    factors = weights + group * weight_group + part * weight_block + iload(chunk_at + 16)
                    # The tiles ask for the weights of the next item, or those of this one's next chunk.
                    following = item + 1
                    after = chunk_at
                    if following == until:
                        if is_last == 0:
                            following = at
                            after = chunk_at + 32
                        else:
                            after = chunk_table
                    ahead = (
                        weights + following // (parts * strips) * weight_group + following % parts * weight_block
                        + iload(after + 16)
                    )  # fmt: skip
                    if following == end:
                        ahead = factors
                    last_ahead = ahead + size
                    count = channels - part * 16
                    biases = bias + (group * channels + part * 16) * 4
                    biased = count
                    if bias == 0:
                        # Any memory: processors take hundreds of cycles to load no lanes from where there is none.
                        biases = steps
                        biased = 0
                    first = iload(strip_table + strip * 8)
                    image = first // tiles
                    tile = first % tiles
                    position = tile * positions - max(0, tile - large)
                    column = position % width
                    images = src + group * src_group
                    planes = dst + (group * parts + part) * dst_block
                    source = images + image // slabs * src_batch + image % slabs * src_slab
                    source += position // width * src_row + column * src_step
                    to = planes + image // slabs * dst_batch + image % slabs * dst_slab + position * 64
                    for _ in range(iload(strip_table + strip * 8 + 8) - first):
                        if tile < large:
                            large_tile(T, own, source, column, width, src_step, wrap, factors, weight_row, ahead, to, biases,
                                       biased, count, 0, is_first, is_last, to_start, to_residual, low32, bound32, weight_block,
                                       dst_block)  # fmt: skip
                            taken = positions
                        else:
                            small_tile(T, own, source, column, width, src_step, wrap, factors, weight_row, ahead, to, biases,
                                       biased, count, 0, is_first, is_last, to_start, to_residual, low32, bound32, weight_block,
                                       dst_block)  # fmt: skip
                            taken = positions - 1
                        ahead += T * LINES * 64
                        if ahead >= last_ahead:
                            ahead = factors
                            last_ahead = 0
                        tile += 1
                        if tile == tiles:
                            image += 1
                            tile = 0
                            column = 0
                            source = images + image // slabs * src_batch + image % slabs * src_slab
                            to = planes + image // slabs * dst_batch + image % slabs * dst_slab
                        else:
                            column += taken
                            source += taken * src_step
                            to += taken * 64
                            while column >= width:
                                column -= width
                                source += wrap
            at = until

    return conv_chunks, types.void(*[types.int64] * 32, types.float64, types.float64)
