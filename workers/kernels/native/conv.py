"""Batch-reduce convolution: register tiles of output positions, whose sources are found through a table.

The table makes the same code serve every kernel size, stride, dilation and channel count; only the shape of the tile
and the distance of neighbours are compiled in. The destination has 16 channels side by side; weights are rows of at
least 16 outputs, a row for each lane of a step: whether a row holds several blocks or the blocks are apart is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .reduce_tile import make_foreseeing_tile
from .tile_shape import NO_RESIDUAL, TileShape
from .vec import iload


def make(
    isa: str,
    tiles: tuple[tuple[int, ...], ...],
    blocks: int,
    step: int,
    ragged: bool,
    trims: tuple[tuple[int, int], ...] = (),
) -> tuple[Callable[..., None], Any]:
    """Return the kernel for one or two kinds of ``tiles``.

    A tile is a tuple of runs: (7, 7) is two runs of 7 positions. ``step`` is the distance in bytes of neighbours in a
    run; ``blocks`` are computed at once; ``ragged`` zeroes the lanes behind the last channel. With ``trims``, a step leaves out
    positions, see `TileShape`.

    Arguments of the kernel, sizes in bytes unless said otherwise: addresses of src, weights, bias (0: none), dst and
    residual (0: none); the tables ``steps`` (T times src offset, lanes, weights to skip, and with ``trims`` the number of one,
    for each walk), ``walks`` (offset in steps, T, weights to skip first), ``tile_table`` (kind, src offset, dst offset, offset
    in walks) and ``strip_table`` (first tile of each strip, and the end); then ``strips``, ``groups``, output blocks a group,
    channels a group, then the strides src_batch, src_group, run (from run to run in src), weight_group, weight_block,
    weight_row, dst_batch and dst_block, and the lower bounds applied before and after the residual is added (-inf: none;
    without a residual only the second counts).
    One item of work is a strip of tiles for ``blocks`` output blocks of one group of one image.
    """
    large, small = tiles[0], tiles[-1]
    tail = "zero" if ragged else "none"
    wide_first, wide_second, single_first, single_second = (
        make_foreseeing_tile(TileShape(runs, count, step, 4, tail, asks="next", trims=trims))
        for count in (blocks, 1)
        for runs in (large, small)
    )
    two = len(tiles) > 1

    def conv(
        begin: int, end: int, src: int, weights: int, bias: int, dst: int, residual: int,
        steps: int, walks: int, tile_table: int, strip_table: int, strips: int, groups: int, group_blocks: int,
        channels: int, src_batch: int, src_group: int, run: int, weight_group: int, weight_block: int,
        weight_row: int, dst_batch: int, dst_block: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        parts = (group_blocks + blocks - 1) // blocks
        to_residual = residual - dst
        if residual == 0:
            to_residual = NO_RESIDUAL
        low32 = np.float32(low)
        bound32 = np.float32(bound)
        for item in range(begin, end):
            part = item % parts
            strip = (item // parts) % strips
            group = (item // (parts * strips)) % groups
            image = item // (parts * strips * groups)
            block = part * blocks
            count = channels - block * 16
            factors = weights + group * weight_group + block * weight_block
            biases = bias + (group * channels + block * 16) * 4
            biased = count
            if bias == 0:
                # Any memory: processors take hundreds of cycles to load no lanes from where there is none.
                biases = steps
                biased = 0
            source = src + image * src_batch + group * src_group
            target = dst + image * dst_batch + (group * group_blocks + block) * dst_block
            rest = min(blocks, group_blocks - block)
            first_tile, end_tile = iload(strip_table + strip * 8), iload(strip_table + strip * 8 + 8)
            # Lines of the next part's weights, which lie behind those of this one: all tiles ask for some.
            asked = factors + blocks * weight_block
            unasked = min(blocks, group_blocks - block - blocks) * weight_block // 64
            for tile in range(first_tile, end_tile):
                entry = tile_table + tile * 32
                walk = walks + iload(entry + 24)
                taken = steps + iload(walk)
                T = iload(walk + 8)
                first = factors + iload(walk + 16)
                at = source + iload(entry + 8)
                to = target + iload(entry + 16)
                is_second = two and iload(entry) != 0
                # A tile asks for the source of the next one, the last one for its own.
                to_next = 0
                if tile + 1 < end_tile:
                    to_next = iload(entry + 40) - iload(entry + 8)
                lines = 0
                if unasked > 0:
                    turns = (end_tile - tile) * T
                    lines = (unasked + turns - 1) // turns
                if blocks == 1 or rest == blocks:
                    if is_second:
                        wide_second(T, taken, at, run, first, weight_block, weight_row, asked, to, dst_block, 64, 0,
                                    biases, biased, count, to_residual, low32, bound32, lines, to_next)  # fmt: skip
                    else:
                        wide_first(T, taken, at, run, first, weight_block, weight_row, asked, to, dst_block, 64, 0,
                                   biases, biased, count, to_residual, low32, bound32, lines, to_next)  # fmt: skip
                else:
                    for j in range(rest):
                        rows = first + j * weight_block
                        out = to + j * dst_block
                        before = j * 16
                        if is_second:
                            single_second(T, taken, at, run, rows, weight_block, weight_row, asked, out, dst_block, 64,
                                          0, biases + before * 4, biased - before, count - before, to_residual,
                                          low32, bound32, 0, to_next)  # fmt: skip
                        else:
                            single_first(T, taken, at, run, rows, weight_block, weight_row, asked, out, dst_block, 64,
                                         0, biases + before * 4, biased - before, count - before, to_residual,
                                         low32, bound32, 0, to_next)  # fmt: skip
                asked += lines * T * 64
                unasked -= lines * T

    return conv, types.void(*[types.int64] * 23, types.float64, types.float64)
