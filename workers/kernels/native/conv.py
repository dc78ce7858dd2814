"""Batch-reduce convolution: tiles of output positions times blocks of 16 output channels stay in registers.

A tile accumulates ``T`` steps; step t reads ``lanes`` consecutive floats at every position of the tile, starting at
offset t of a table, and as many rows of 16 weights for each block. The table makes the same code serve every kernel
size, stride, dilation and channel count; only the shape of the tile and the distance of neighbours are compiled in.

The inner loop is not unrolled, on purpose: it has one load for each block and one broadcast for each position, needs
no spill, and unrolled versions are slower because LLVM then hoists loads until accumulators go to the stack.

Weights lie as rows of at least 16 outputs, a row for each step and lane; where a row holds several blocks or the blocks
lie apart is an argument. The destination has 16 channels side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from .vec import (
    F32,
    I8,
    I32,
    I64,
    VF,
    WIDTH,
    Builder,
    Value,
    call,
    constant,
    fma,
    iload,
    lanes_below,
    load,
    maximum,
    splat,
    store,
)  # fmt: skip

Tile = tuple[int, ...]

#: Where no residual is added: no distance of two float addresses is odd.
_NO_RESIDUAL: Final = 1


def make(isa: str, tiles: tuple[Tile, ...], blocks: int, step: int, ragged: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel for up to two kinds of ``tiles``.

    A tile is a tuple of runs: (7, 7) is two runs of 7 positions. ``step`` is the distance in bytes of neighbours in a
    run; ``blocks`` are computed at once; ``ragged`` zeroes the lanes behind the last channel.

    Arguments of the kernel, sizes in bytes unless said otherwise: addresses of src, weights, bias (0: none), dst and
    residual (0: none); the tables ``offsets`` (T items), ``tile_table`` (kind, src offset, dst offset) and
    ``strip_table`` (first tile of each strip, and the end); then ``strips``, ``groups``, output blocks a group, T,
    lanes, channels a group, then the strides src_batch, src_group, run (from run to run in src), weight_group,
    weight_block, weight_row, dst_batch and dst_block, and the lower bounds applied before and after the residual is
    added (-inf: none; without a residual only the second counts).
    One item of work is a strip of tiles for ``blocks`` output blocks of one group of one image.
    """
    first, second = tiles[0], tiles[-1]
    wide = [_tile(kind, blocks, step, ragged) for kind in (first, second)]
    single = [_tile(kind, 1, step, ragged) for kind in (first, second)]
    wide_first, wide_second = wide
    single_first, single_second = single
    two = len(tiles) > 1

    def conv(
        begin: int, end: int, src: int, weights: int, bias: int, dst: int, residual: int,
        offsets: int, tile_table: int, strip_table: int, strips: int, groups: int, group_blocks: int, T: int,
        lanes: int, channels: int, src_batch: int, src_group: int, run: int, weight_group: int, weight_block: int,
        weight_row: int, dst_batch: int, dst_block: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        parts = (group_blocks + blocks - 1) // blocks
        to_residual = residual - dst
        if residual == 0:
            to_residual = _NO_RESIDUAL
        low32 = np.float32(low)
        bound32 = np.float32(bound)
        for item in range(begin, end):
            part = item % parts
            strip = (item // parts) % strips
            group = (item // (parts * strips)) % groups
            image = item // (parts * strips * groups)
            block = part * blocks
            number = group * group_blocks + block
            count = channels - block * 16
            factors = weights + group * weight_group + block * weight_block
            biases = bias + (group * channels + block * 16) * 4
            biased = count
            if bias == 0:
                biased = 0
            source = src + image * src_batch + group * src_group
            target = dst + image * dst_batch + number * dst_block
            rest = min(blocks, group_blocks - block)
            for tile in range(iload(strip_table + strip * 8), iload(strip_table + strip * 8 + 8)):
                entry = tile_table + tile * 24
                at = source + iload(entry + 8)
                to = target + iload(entry + 16)
                is_second = two and iload(entry) != 0
                if blocks == 1 or rest == blocks:
                    if is_second:
                        wide_second(T, lanes, at, offsets, run, factors, weight_block, weight_row, to, dst_block,
                                    biases, biased, count, to_residual, low32, bound32)  # fmt: skip
                    else:
                        wide_first(T, lanes, at, offsets, run, factors, weight_block, weight_row, to, dst_block,
                                   biases, biased, count, to_residual, low32, bound32)  # fmt: skip
                else:
                    for j in range(rest):
                        rows = factors + j * weight_block
                        out = to + j * dst_block
                        before = j * 16
                        if is_second:
                            single_second(T, lanes, at, offsets, run, rows, weight_block, weight_row, out, dst_block,
                                          biases + before * 4, biased - before, count - before, to_residual,
                                          low32, bound32)  # fmt: skip
                        else:
                            single_first(T, lanes, at, offsets, run, rows, weight_block, weight_row, out, dst_block,
                                         biases + before * 4, biased - before, count - before, to_residual,
                                         low32, bound32)  # fmt: skip

    return conv, types.void(*[types.int64] * 24, types.float64, types.float64)


def _tile(tile: Tile, blocks: int, step: int, ragged: bool) -> Any:
    """Return the intrinsic that computes one tile of ``blocks`` output blocks."""

    @intrinsic
    def compute(
        _: Any, T: Any, lanes: Any, src: Any, offsets: Any, run: Any, weights: Any, weight_block: Any,
        weight_row: Any, dst: Any, dst_block: Any, bias: Any, biased: Any, count: Any, to_residual: Any, low: Any,
        bound: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            _emit_tile(b, tile, blocks, step, ragged, *a)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 14, types.float32, types.float32), emit

    return compute


def _emit_tile(
    b: Builder, tile: Tile, blocks: int, step: int, ragged: bool, T: Value, lanes: Value, src: Value, offsets: Value,
    run: Value, weights: Value, weight_block: Value, weight_row: Value, dst: Value, dst_block: Value, bias: Value,
    biased: Value, count: Value, to_residual: Value, low: Value, bound: Value,
) -> None:  # fmt: skip
    positions = sum(tile)
    start = [_masked(b, b.add(bias, I64(WIDTH * j)), b.sub(biased, I64(16 * j))) for j in range(blocks)]
    entry = b.block
    outer, inner, latch, done = (b.append_basic_block(name) for name in ("step", "lane", "next", "store"))
    b.branch(outer)

    b.position_at_end(outer)
    t = _phi(b, I64, I64(0), entry)
    outer_weights = _phi(b, I64, weights, entry)
    outer_sums = [_phi(b, VF, start[j], entry) for _ in range(positions) for j in range(blocks)]
    offset = b.load(b.inttoptr(b.add(offsets, b.shl(t, I64(3))), I64.as_pointer()), align=8)
    begin = b.add(src, offset)
    b.branch(inner)

    b.position_at_end(inner)
    left = _phi(b, I64, lanes, outer)
    row = _phi(b, I64, outer_weights, outer)
    source = _phi(b, I64, begin, outer)
    sums = [_phi(b, VF, value, outer) for value in outer_sums]
    new = list(sums)
    rows = b.inttoptr(row, I8.as_pointer())
    factors = [_load(b, b.gep(rows, [b.mul(weight_block, I64(j))])) for j in range(blocks)]
    number = 0
    for index, length in enumerate(tile):
        base = b.inttoptr(b.add(source, b.mul(run, I64(index))) if index else source, I8.as_pointer())
        for position in range(length):
            scalar = b.load(b.bitcast(b.gep(base, [I64(position * step)]), F32.as_pointer()), align=4)
            value = splat(b, scalar)
            for j in range(blocks):
                new[number] = fma(b, value, factors[j], new[number])
                number += 1
    left_next, row_next = b.sub(left, I64(1)), b.add(row, weight_row)
    for phi, value in zip((left, row, source, *sums), (left_next, row_next, b.add(source, I64(4)), *new), strict=True):
        phi.add_incoming(value, inner)
    b.cbranch(b.icmp_signed(">", left_next, I64(0)), inner, latch)

    b.position_at_end(latch)
    t_next = b.add(t, I64(1))
    for phi, value in zip((t, outer_weights, *outer_sums), (t_next, row_next, *new), strict=True):
        phi.add_incoming(value, latch)
    b.cbranch(b.icmp_signed("<", t_next, T), outer, done)

    b.position_at_end(done)
    masks = [lanes_below(b, b.sub(count, I64(16 * j))) for j in range(blocks)] if ragged else None
    lower, upper = splat(b, low), splat(b, bound)
    with b.if_else(b.icmp_signed("!=", to_residual, I64(_NO_RESIDUAL))) as (with_residual, without):
        for branch, has_residual in ((with_residual, True), (without, False)):
            with branch:
                for number, value in enumerate(new):
                    position, j = divmod(number, blocks)
                    to = b.add(dst, b.add(b.mul(dst_block, I64(j)), I64(WIDTH * position)))
                    if has_residual:
                        value = b.fadd(maximum(b, lower, value), load(b, b.add(to, to_residual)))
                    value = maximum(b, upper, value)
                    store(b, to, b.select(masks[j], value, constant(0.0)) if masks else value)


def _phi(b: Builder, kind: ir.Type, value: Value, block: Value) -> Value:
    phi = b.phi(kind)
    phi.add_incoming(value, block)
    return phi


def _load(b: Builder, where: Value) -> Value:
    return b.load(b.bitcast(where, VF.as_pointer()), align=4)


def _masked(b: Builder, address: Value, count: Value) -> Value:
    """Load the lanes below ``count``, zeros in the others; with none, the address is not touched."""
    where = b.inttoptr(address, VF.as_pointer())
    return call(b, "llvm.masked.load.v16f32.p0", where, I32(4), lanes_below(b, count), constant(0.0))
