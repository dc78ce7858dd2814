"""Convolution of groups that are no whole blocks of 16 channels, each block of outputs in as many parts as it has groups.

A part is the sums of one group in a block. Its tile computes all 16 outputs with weights of that group's rows, of which
those that belong to other groups are not stored. So the hot loop is that of `conv_chunks`: no weight is masked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .conv_tile import make_position_tile
from .tile_shape import NO_RESIDUAL
from .vec import iload


def make(isa: str, positions: int, ragged: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel for tiles of ``positions``, and of one less; ``ragged`` zeroes the lanes behind the last channel.

    Arguments of the kernel, sizes in bytes unless said otherwise: addresses of src, weights, bias (0: none), dst and
    residual (0: none); the tables ``block_table`` (first part of each block, and the end), ``part_table`` (for each part
    where its steps begin, their number, where its weights begin, where its outputs are in ``outputs`` or -1 if it has all of
    the block), ``outputs`` (16 words of 32 bits, ones for outputs of the part), ``steps`` (source offset, lanes,
    weights to skip) and ``strip_table`` (first tile of each strip of an image, and the end); then strips, output blocks and
    channels of an image; tiles of an image that are large, columns of a row of outputs; slabs of an item
    of the batch, of which each counts as an image, and the bytes from slab to slab in src and in dst; the strides src_batch,
    src_row (from row to row of outputs), src_step (from column to column), weight_row and dst_block; and the lower bounds
    applied before and after the residual is added.
    One item of work is a strip of tiles for one output block of one image.
    """
    large_tile, small_tile = (
        make_position_tile(count, ragged, shared=True) for count in (positions, max(1, positions - 1))
    )

    def conv_group_parts(
        begin: int, end: int, src: int, weights: int, bias: int, dst: int, residual: int, block_table: int,
        part_table: int, outputs: int, steps: int, strip_table: int, strips: int, blocks: int, channels: int, large: int,
        width: int, slabs: int, src_slab: int, dst_slab: int,
        src_batch: int, src_row: int, src_step: int, weight_row: int, dst_block: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        to_residual = residual - dst
        if residual == 0:
            to_residual = NO_RESIDUAL
        low32 = np.float32(low)
        bound32 = np.float32(bound)
        wrap = src_row - width * src_step
        for item in range(begin, end):
            block = item % blocks
            strip = (item // blocks) % strips
            image = item // (blocks * strips)
            count = channels - block * 16
            biases = bias + block * 64
            biased = count
            if bias == 0:
                # Any memory: processors take hundreds of cycles to load no lanes from where there is none.
                biases = steps
                biased = 0
            first = iload(strip_table + strip * 8)
            last = iload(strip_table + strip * 8 + 8)
            position = first * positions - max(0, first - large)
            for part in range(iload(block_table + block * 8), iload(block_table + block * 8 + 8)):
                entry = part_table + part * 32
                own = steps + iload(entry)
                T = iload(entry + 8)
                factors = weights + iload(entry + 16)
                mask = iload(entry + 24)
                if mask < 0:
                    mask = 0
                else:
                    mask += outputs
                column = position % width
                source = src + image // slabs * src_batch + image % slabs * src_slab
                source += position // width * src_row + column * src_step
                to = dst + (image // slabs * blocks + block) * dst_block + image % slabs * dst_slab + position * 64
                for tile in range(first, last):
                    if tile < large:
                        large_tile(T, own, source, column, width, src_step, wrap, factors, weight_row, factors, to, biases,
                                   biased, count, mask, 1, 1, NO_RESIDUAL, to_residual, low32, bound32, 0, 0)  # fmt: skip
                        taken = positions
                    else:
                        small_tile(T, own, source, column, width, src_step, wrap, factors, weight_row, factors, to, biases,
                                   biased, count, mask, 1, 1, NO_RESIDUAL, to_residual, low32, bound32, 0, 0)  # fmt: skip
                        taken = positions - 1
                    column += taken
                    source += taken * src_step
                    to += taken * 64
                    while column >= width:
                        column -= width
                        source += wrap

    return conv_group_parts, types.void(*[types.int64] * 25, types.float64, types.float64)
