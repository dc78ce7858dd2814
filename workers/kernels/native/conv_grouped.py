"""Convolution of groups that are no whole blocks of 16 channels, on activations in such blocks.

A block of outputs may belong to several groups. Its sums run over the inputs of all of them, where the weights of one
group count as zeros for the outputs of another. So neither activations nor weights are copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .reduce_tile import make_tile
from .tile_shape import NO_RESIDUAL, TileShape
from .vec import iload


def make(
    isa: str, tiles: tuple[tuple[int, ...], ...], step: int, ragged: bool, inputs: int = 0
) -> tuple[Callable[..., None], Any]:
    """Return the kernel for one or two kinds of ``tiles``, as `conv` has them, of one block of outputs.

    If groups have as many ``inputs`` as outputs, and a block has whole groups, its sums run over one block of inputs.

    Arguments of the kernel, sizes in bytes unless said otherwise: addresses of src, weights, bias (0: none), dst and
    residual (0: none); the tables ``block_table`` (for each block of outputs the start of its steps in ``steps``, and their
    number), ``steps`` (see `TileShape.masked`), ``tile_table`` and ``strip_table`` (see `conv`); then ``strips``, output
    blocks and channels of an image, the strides src_batch, run (from run to run in src), weight_row and dst_block, and
    the lower bounds applied before and after the residual is added.
    One item of work is a strip of tiles for one output block of one image.
    """
    tail = "zero" if ragged else "none"
    first, second = (
        make_tile(TileShape(runs, 1, step, 4, tail, masked=True, inputs=inputs)) for runs in (tiles[0], tiles[-1])
    )
    two = len(tiles) > 1

    def conv_grouped(
        begin: int, end: int, src: int, weights: int, bias: int, dst: int, residual: int,
        block_table: int, steps: int, tile_table: int, strip_table: int, strips: int, blocks: int, channels: int,
        src_batch: int, run: int, weight_row: int, dst_block: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        to_residual = residual - dst
        if residual == 0:
            to_residual = NO_RESIDUAL
        low32 = np.float32(low)
        bound32 = np.float32(bound)
        for item in range(begin, end):
            block = item % blocks
            strip = (item // blocks) % strips
            image = item // (blocks * strips)
            count = channels - block * 16
            own = steps + iload(block_table + block * 16)
            T = iload(block_table + block * 16 + 8)
            biases = bias + block * 64
            biased = count
            if bias == 0:
                # Any memory: processors take hundreds of cycles to load no lanes from where there is none.
                biases = steps
                biased = 0
            source = src + image * src_batch
            target = dst + (image * blocks + block) * dst_block
            for tile in range(iload(strip_table + strip * 8), iload(strip_table + strip * 8 + 8)):
                entry = tile_table + tile * 24
                at = source + iload(entry + 8)
                to = target + iload(entry + 16)
                if two and iload(entry) != 0:
                    second(T, own, at, run, weights, 0, weight_row, 0, to, dst_block, 64, 0, biases, biased, count,
                           to_residual, low32, bound32)  # fmt: skip
                else:
                    first(T, own, at, run, weights, 0, weight_row, 0, to, dst_block, 64, 0, biases, biased, count,
                          to_residual, low32, bound32)  # fmt: skip

    return conv_grouped, types.void(*[types.int64] * 18, types.float64, types.float64)
