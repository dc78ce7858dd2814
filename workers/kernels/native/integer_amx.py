"""Convolution and product of 8-bit integers by tiles of AMX, requantized as `integer_tile` does.

A tile has neighbouring positions of a row of the image, each with up to 64 neighbouring numbers of src. A table of steps makes
the same code serve every kernel size, stride, dilation and channel count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .amx_tile import (
    ALL_SUM_BYTES,
    CONFIG_BYTES,
    PRODUCTS,
    ROW_BYTES,
    SUM_BYTES,
    ask_for_tiles,
    configure_tiles,
    make_products,
    release_tiles,
)
from .compiler import types
from .compiler.language import intrinsic
from .integer_bounds import make_bounds
from .integer_tile import SIZES, IntegerTile, TileArguments, emit_stores
from .stack_room import stack_room
from .vec import I64, VI, Builder, Value, pointer


def make(isa: str, src: str, dtype: str, residual: str, exact: bool, part: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel; ``src`` is the data type on the left, the others are as those of `integer_conv`.

    Arguments, sizes in bytes unless said otherwise: addresses of src, weights, dst, residual, terms (s32), factors and offsets
    (f32, one an output, groups filled up to whole blocks), and of scale (f32) and zero point (s32) of dst (0: none); the table
    of steps (T times src offset, instructions) with ``groups`` of 4 numbers an instruction, and that of one more step of one
    instruction with ``tail`` groups, if that is not 0; T; rows of positions, positions of a row, those of a tile, tiles of a
    strip, strips; groups of channels, output blocks a group, channels a group; the strides src_batch, src_group, row, step,
    weight_group, weight_block, dst_batch, dst_step, residual_batch and residual_step; ``groups``, ``tail``, and what is from the
    first step to the one more; and as floats the residual's factor and the bounds of the result before scale and zero point
    of dst. One item of work is a strip of tiles for two output blocks of one group of one image. The last tile of a row
    begins earlier if positions are no whole tiles, and does not store again what the one before has.
    """
    add_products = make_products(PRODUCTS[src, "s8"])
    store_row = _make_store(dtype, residual, exact, part)
    size, other_size = SIZES[dtype], SIZES.get(residual, 0)
    bounds = make_bounds(dtype)
    config_room, sum_room = stack_room(CONFIG_BYTES), stack_room(ALL_SUM_BYTES)

    def conv(
        begin: int, end: int, src: int, weights: int, dst: int, other: int, terms: int, factors: int, offsets: int,
        scale: int, zero_point: int, steps: int, tail_step: int, T: int, rows: int, columns: int, height: int,
        strip_tiles: int, strips: int, groups: int, group_blocks: int, channels: int, src_batch: int, src_group: int,
        row: int, step: int, weight_group: int, weight_block: int, dst_batch: int, dst_step: int, other_batch: int,
        other_step: int, chunk: int, tail: int, done: int, weight: float, low: float, high: float,
    ) -> None:  # fmt: skip
        factor32, low32, high32, plus = bounds(scale, zero_point, weight, low, high)
        ask_for_tiles()
        config, sums = config_room(), sum_room()
        parts = (group_blocks + 1) // 2
        across = (columns + height - 1) // height
        tiles = rows * across
        configure_tiles(config, height, chunk)
        for item in range(begin, end):
            block = item % parts * 2
            strip = (item // parts) % strips
            group = (item // (parts * strips)) % groups
            image = item // (parts * strips * groups)
            wide = min(2, group_blocks - block)
            numbers = (group * group_blocks + block) * 64
            channel = group * channels + block * 16
            factor = weights + group * weight_group + block * weight_block
            source = src + image * src_batch + group * src_group
            target = dst + image * dst_batch + channel * size
            added = other + image * other_batch + channel * other_size
            tile = strip * strip_tiles
            last = min(tiles, tile + strip_tiles)
            while tile < last:
                panels = min(2, last - tile)
                one = tile // across * row + min(tile % across * height, columns - height) * step
                second = min(tile + 1, tiles - 1)
                two = second // across * row + min(second % across * height, columns - height) * step
                if tail != 0:
                    configure_tiles(config, height, chunk)
                add_products(
                    panels, wide, 0, T, steps, source + one, two - one, step, chunk * 4, factor, weight_block, sums
                )
                if tail != 0:
                    configure_tiles(config, height, tail)
                    add_products(panels, wide, 1, 1, tail_step, source + one + done, two - one, step, tail * 4,
                                 factor + done * 16, weight_block, sums)  # fmt: skip
                for i in range(panels):
                    wanted = (tile + i) % across * height
                    start = min(wanted, columns - height)
                    first = (tile + i) // across * columns + start
                    for r in range(wanted - start, height):
                        to = target + (first + r) * dst_step
                        beside = added + (first + r) * other_step
                        for j in range(wide):
                            own = numbers + j * 64
                            store_row(sums + (2 * i + j) * SUM_BYTES + r * ROW_BYTES, to + j * 16 * size, terms + own,
                                      factors + own, offsets + own, channels - (block + j) * 16, beside + j * 16 * other_size,
                                      factor32, low32, high32, plus)  # fmt: skip
                tile += panels
        release_tiles()

    return conv, types.void(*[types.int64] * 35, *[types.float64] * 3)


def _make_store(dtype: str, residual: str, exact: bool, part: bool) -> Any:
    """Return the intrinsic that stores 16 outputs of a position.

    Arguments: addresses of sums, of results, of terms, factors and offsets; outputs from there; the address of what is added;
    its factor, and bounds; the zero point of bytes.
    """
    shape = IntegerTile("amx", 512, (1,), 1, dtype, residual, exact, part, "s8")

    @intrinsic
    def store_row(
        _: Any, sums: Any, to: Any, terms: Any, factors: Any, offsets: Any, count: Any, beside: Any, weight: Any, low: Any,
        high: Any, point: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            sums, to, terms, factors, offsets, count, beside, weight, low, high, point = a
            total, term = (b.load(pointer(b, at, VI), align=4) for at in (sums, terms))
            none = dict.fromkeys(TileArguments._fields, I64(0))
            given = {
                "dst": to, "terms": terms, "factor": factors, "offset": offsets, "count": count, "residual": beside,
                "weight": weight, "lower": low, "upper": high, "point": point,
            }  # fmt: skip
            emit_stores(b, shape, TileArguments(**{**none, **given}), [b.add(total, term)])
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7, *[types.float32] * 3, types.int64), emit

    return store_row
