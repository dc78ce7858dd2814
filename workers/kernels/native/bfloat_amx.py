"""Product of bf16 matrices into a row-major dst, summed in float32 by the instruction of AMX for whole tiles.

Limitation: the instruction takes factors and sums below 2**-126 in magnitude for 0, and always rounds to even, also if the
processor is set otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...desc.data_type import item_size
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
from .elements import STORED, masked_load, narrowed, widened
from .first_lanes import masked_store
from .stack_room import stack_room
from .vec import F32, Builder, Value, lanes_below, load, maximum, splat


def make(isa: str, bias: str, dst: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel; ``bias`` and ``dst`` are data types; no ``bias`` if nothing is added.

    Arguments: addresses of the left matrix, row-major with rows of whole pairs, of the packed right one, of bias (one a column)
    and of dst; tables of one step each, (0, products along K) with ``groups`` pairs and then (0, 1) with ``tail`` pairs, if
    that is not 0; rows, columns and pairs along K; rows of a panel, panels of a strip, strips; bytes from row to row on the
    left; ``groups`` and ``tail``; and the lower bound of results. One item of work is a strip of panels for two vectors of
    columns; a strip is multiplied by all columns before the next one. The last panel begins earlier if rows are no whole
    panels: nothing behind the left matrix is read.
    """
    add_products = make_products(PRODUCTS["bf16", "bf16"])
    store_row = _make_store(bias, dst)
    bias_size, size = item_size(bias or "f32"), item_size(dst)
    config_room, sum_room = stack_room(CONFIG_BYTES), stack_room(ALL_SUM_BYTES)

    def matrix_product(
        begin: int, end: int, left: int, right: int, biases: int, dst: int, steps: int, tail_step: int, rows: int,
        columns: int, pairs: int, height: int, strip_panels: int, strips: int, row: int, groups: int, tail: int,
        bound: float,
    ) -> None:  # fmt: skip
        ask_for_tiles()
        config, sums = config_room(), sum_room()
        vectors = (columns + 15) // 16
        panels = (rows + height - 1) // height
        block = pairs * ROW_BYTES
        # Columns of the left factor, and rows of the right one, that are behind the whole products.
        done = (pairs - tail) * 4
        configure_tiles(config, height, groups)
        parts = (vectors + 1) // 2
        for item in range(begin, end):
            first = item % parts * 2
            wide = min(2, vectors - first)
            factors = right + first * block
            panel = item // parts * strip_panels
            last = min(panels, panel + strip_panels)
            while panel < last:
                high = min(2, last - panel)
                start = min(panel * height, rows - height)
                other = min((panel + 1) * height, rows - height)
                source, distance = left + start * row, (other - start) * row
                if tail != 0:
                    configure_tiles(config, height, groups)
                add_products(high, wide, 0, 1, steps, source, distance, row, groups * 4, factors, block, sums)
                if tail != 0:
                    configure_tiles(config, height, tail)
                    add_products(high, wide, 1, 1, tail_step, source + done, distance, row, tail * 4, factors + done * 16,
                                 block, sums)  # fmt: skip
                for i in range(high):
                    start = min((panel + i) * height, rows - height)
                    for r in range((panel + i) * height - start, height):
                        for j in range(wide):
                            column = (first + j) * 16
                            store_row(sums + (2 * i + j) * SUM_BYTES + r * ROW_BYTES, biases + column * bias_size,
                                      dst + ((start + r) * columns + column) * size, columns - column, bound)  # fmt: skip
                panel += high
        release_tiles()

    return matrix_product, types.void(*[types.int64] * 17, types.float64)


def _make_store(bias: str, dst: str) -> Any:
    """Return the intrinsic that stores 16 results: addresses of sums, bias and results; columns from there; lower bound."""

    @intrinsic
    def store_row(_: Any, sums: Any, biases: Any, to: Any, count: Any, bound: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            sums, biases, to, count, bound = a
            mask = lanes_below(b, count)
            value = load(b, sums)
            if bias:
                value = b.fadd(value, widened(b, masked_load(b, biases, STORED[bias], mask), bias))
            value = maximum(b, splat(b, b.fptrunc(bound, F32)), value)
            masked_store(b, narrowed(b, value, dst), to, mask)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4, types.float64), emit

    return store_row
