"""Convolution and product of 8-bit integers: register tiles over positions with channels side by side, requantized.

The table of steps makes the same code serve every kernel size, stride, dilation and channel count; only the shape of the
tile and the data types are compiled in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import types
from .integer_bounds import make_bounds
from .integer_dot import register_bits
from .integer_tile import SIZES, IntegerTile, make_integer_tile
from .integers import load_s32
from .vec import iload


def make(
    isa: str, how: str, tiles: tuple[tuple[int, ...], ...], blocks: int, dtype: str, residual: str, exact: bool,
    part: bool, kind: str, counts: bool = False, straddles: bool = False, parts: int = 1, apart: int = 0,
) -> tuple[Callable[..., None], Any]:  # fmt: skip
    """Return the kernel for one or two kinds of ``tiles``, tuples of runs; ``blocks`` of 16 outputs are computed at once.

    ``dtype`` and ``residual`` (nothing: none) are data types of dst and of what is added; ``part`` if the outputs of a
    group are no whole blocks; ``kind`` is the data type of weights. With ``counts``, tiles add up the weights that the zero point
    of src and what was added to src are multiplied by; else the terms have that. With ``straddles``, blocks are those of all
    outputs, and a block with outputs of several groups is computed for each of them. A block has the outputs of ``parts`` groups
    whose sources are ``apart`` bytes from each other; these count as one group.

    Arguments, sizes in bytes unless said otherwise: addresses of src, weights, dst, residual, terms (s32), factors and
    offsets (f32, one an output, groups filled up to whole blocks), and of scale (f32) and zero point (s32) of dst (0:
    none); the tables of steps (T times src offset, groups of numbers), tiles (kind, src offset, position) and strips (first
    tile of each, and the end); then strips, groups, output blocks a group, T and channels a group; the strides src_batch,
    src_group, run, step, weight_group, weight_block, dst_batch, dst_step, residual_batch and residual_step; the address of the
    zero point of src (s32; 0: none) and what was added to src, both without effect unless tiles count weights; and as floats
    the residual's factor and the bounds of the result before scale and zero point of dst.
    One item of work is a strip of tiles for ``blocks`` output blocks of one group of one image.
    """
    first, second = tiles[0], tiles[-1]
    bits = register_bits(isa)

    def tile(runs: tuple[int, ...], count: int) -> Any:
        return make_integer_tile(
            IntegerTile(how, bits, runs, count, dtype, residual, exact, part, kind, counts, straddles, parts, apart)
        )

    wide_first, wide_second, single_first, single_second = (
        tile(runs, count) for count in (blocks, 1) for runs in (first, second)
    )
    two = len(tiles) > 1
    size, other_size = SIZES[dtype], SIZES.get(residual, 0)
    bounds = make_bounds(dtype)

    def conv(
        begin: int, end: int, src: int, weights: int, dst: int, other: int, terms: int, factors: int, offsets: int,
        scale: int, zero_point: int, steps: int, tile_table: int, strip_table: int, strips: int, groups: int,
        group_blocks: int, T: int, channels: int, src_batch: int, src_group: int, run: int, step: int,
        weight_group: int, weight_block: int, dst_batch: int, dst_step: int, other_batch: int, other_step: int,
        src_point: int, minus: int, weight: float, low: float, high: float,
    ) -> None:  # fmt: skip
        passes = (group_blocks + blocks - 1) // blocks
        factor32, low32, high32, plus = bounds(scale, zero_point, weight, low, high)
        if counts and src_point != 0:
            minus += load_s32(src_point)
        for item in range(begin, end):
            part_number = item % passes
            strip = (item // passes) % strips
            group = (item // (passes * strips)) % groups
            image = item // (passes * strips * groups)
            block = part_number * blocks
            own_blocks, before = group_blocks, 0
            if straddles:
                before = group * channels % 16
                own_blocks = (before + channels + 15) // 16
                first_block = group * channels // 16 + block
                numbers, channel, rows = first_block * 64, first_block * 16, weights + first_block * weight_block
            else:
                numbers = (group * group_blocks + block) * 64
                channel = group * channels + block * 16
                rows = weights + group * weight_group + block * weight_block
            count, skipped = before + channels - block * 16, before - block * 16
            source = src + image * src_batch + group * src_group
            target = dst + image * dst_batch + channel * size
            added = other + image * other_batch + channel * other_size
            rest = min(blocks, own_blocks - block)
            first_tile = iload(strip_table + strip * 8)
            for number in range(first_tile, iload(strip_table + strip * 8 + 8)):
                # The first tiles ask for the weights of the next part, a block each.
                ahead = 0
                if number - first_tile < blocks and part_number + 1 < passes:
                    ahead = (blocks + number - first_tile) * weight_block
                entry = tile_table + number * 24
                at = source + iload(entry + 8)
                position = iload(entry + 16)
                to = target + position * dst_step
                beside = added + position * other_step
                is_second = two and iload(entry) != 0
                if rest == blocks or (blocks == 1 and not straddles):
                    if is_second:
                        wide_second(T, steps, at, run, step, rows, weight_block, ahead, to, dst_step, terms + numbers,
                                    factors + numbers, offsets + numbers, count, beside, other_step, factor32,
                                    low32, high32, plus, minus, skipped)  # fmt: skip
                    else:
                        wide_first(T, steps, at, run, step, rows, weight_block, ahead, to, dst_step, terms + numbers,
                                   factors + numbers, offsets + numbers, count, beside, other_step, factor32,
                                   low32, high32, plus, minus, skipped)  # fmt: skip
                else:
                    for j in range(rest):
                        own = numbers + j * 64
                        if is_second:
                            single_second(T, steps, at, run, step, rows + j * weight_block, weight_block, 0,
                                          to + j * 16 * size, dst_step, terms + own, factors + own, offsets + own,
                                          count - j * 16, beside + j * 16 * other_size, other_step, factor32,
                                          low32, high32, plus, minus, skipped - j * 16)  # fmt: skip
                        else:
                            single_first(T, steps, at, run, step, rows + j * weight_block, weight_block, 0,
                                         to + j * 16 * size, dst_step, terms + own, factors + own, offsets + own,
                                         count - j * 16, beside + j * 16 * other_size, other_step, factor32,
                                         low32, high32, plus, minus, skipped - j * 16)  # fmt: skip

    return conv, types.void(*[types.int64] * 31, *[types.float64] * 3)
