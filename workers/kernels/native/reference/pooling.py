"""Pool windows; an item is an element of dst. NaN loses against every number in a maximum. Maxima of integers are exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...codes import POOLING
from ..compiler import types
from .data_types import is_less, load, read_whole, store
from .epilogue import finish, put_whole, wraps_as
from .scalars import read_s64
from .tensor import at, base, dim, dtype, rank, where
from .window import kernel_size, positions, tap

MAX = POOLING["max"]
WHOLE = POOLING["avg_include_padding"]


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, dst, workspace or 0, chain, window, algorithm, operands)."""

    def pooling(
        begin: int, end: int, src: int, dst: int, workspace: int, chain: int, window: int, algorithm: int,
        operands: Any,
    ) -> None:  # fmt: skip
        axes = rank(dst)
        kernel = positions(window, axes)
        whole = algorithm == MAX and read_s64(chain) == 0 and wraps_as(src, dst)
        for item in range(begin, end):
            largest, total, highest, winner, count = -np.inf, 0.0, 0, 0, 0
            for position in range(kernel):
                index, rest, place, seen = item, position, base(operands, src), True
                for axis in range(axes - 1, 1, -1):
                    outer, further = index // dim(dst, axis), rest // kernel_size(window, axis)
                    there = tap(
                        window, axis, index - outer * dim(dst, axis), rest - further * kernel_size(window, axis),
                        dim(src, axis),
                    )  # fmt: skip
                    if there < 0:
                        seen = False
                    else:
                        place += at(src, axis, there)
                    index, rest = outer, further
                if seen:
                    image = index // dim(dst, 1)
                    place += at(src, 0, image) + at(src, 1, index - image * dim(dst, 1))
                    if whole:
                        number = read_whole(place, dtype(src))
                        if count == 0 or is_less(highest, number, dtype(src)):
                            winner, highest = position, number
                    else:
                        value = load(place, dtype(src))
                        total += value
                        if value > largest or count == 0:
                            winner = position
                        if value > largest:
                            largest = value
                    count += 1
            if workspace != 0:
                store(base(operands, workspace) + where(workspace, item), dtype(workspace), float(winner))
            if whole and count > 0:
                put_whole(operands, dst, item, highest)
                continue
            if algorithm == MAX:
                value = largest
            else:
                value = total / float(kernel if algorithm == WHOLE else max(1, count))
            finish(operands, dst, chain, item, value)

    return pooling, types.void(*[types.int64] * 8, types.voidptr)
