"""Sums in float32 as results of any floating-point type: bias and residual are added, and each result is rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .elements import elements
from .vec import vadd, vload, vmax


def make_results(bias: str, dst: str) -> Callable[..., None]:
    """Return the function that writes rows of results; ``bias`` and ``dst`` are data types, no ``bias`` if none is added.

    Arguments, distances in bytes: addresses of the sums, 16 side by side, and the distances from row to row and from 16 to
    the next 16; of bias (of the first column), of dst and of the residual (0: none), and the distance from row to row of
    both; rows, columns; vectors of the lower bounds before and after the residual is added.
    """
    to, added = elements(dst), elements(bias or "f32")
    has_bias, size, bias_size = bool(bias), to.size, added.size
    load_bias, load_residual, store, store_part = added.load_part, to.load_part, to.store, to.store_part

    def write(
        sums: int, sums_row: int, block: int, biases: int, onto: int, residual: int, row: int, rows: int, columns: int,
        before: Any, after: Any,
    ) -> None:  # fmt: skip
        for j in range((columns + 15) // 16):
            count = min(16, columns - j * 16)
            for i in range(rows):
                value = vload(sums + i * sums_row + j * block)
                if has_bias:
                    value = vadd(value, load_bias(biases + j * 16 * bias_size, count))
                place = i * row + j * 16 * size
                if residual != 0:
                    value = vadd(vmax(before, value), load_residual(residual + place, count))
                value = vmax(after, value)
                if count == 16:
                    store(onto + place, value)
                else:
                    store_part(onto + place, value, count)

    made: Callable[..., None] = write
    return made
