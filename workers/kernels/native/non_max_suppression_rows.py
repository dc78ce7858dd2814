"""The chosen boxes of all classes as rows of image, class and box, side by side; the rows behind them are zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .bits import make_store
from .compiler import types
from .vec import iload


def make(isa: str, size: int, count_size: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature; numbers of rows have ``size`` bytes, the count of rows ``count_size``."""
    store, store_count = make_store(size), make_store(count_size)

    def kernel(
        begin: int, end: int, dst: int, count: int, scratch: int, parts: int, classes: int, rows: int, each: int,
        row_step: int, number_step: int,
    ) -> None:  # fmt: skip
        for _ in range(begin, end):
            used = 0
            for part in range(parts):
                chosen = scratch + part * each
                image = part // classes
                for number in range(iload(chosen)):
                    row = dst + used * row_step
                    store(row, image)
                    store(row + number_step, part - image * classes)
                    store(row + 2 * number_step, iload(chosen + 64 + 8 * number))
                    used += 1
            for number in range(used, rows):
                row = dst + number * row_step
                store(row, 0)
                store(row + number_step, 0)
                store(row + 2 * number_step, 0)
            store_count(count, used)

    return kernel, types.void(*[types.int64] * 11)
