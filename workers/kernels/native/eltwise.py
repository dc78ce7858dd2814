"""Apply a function of one variable to runs of elements in any layout; alpha and beta are given at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from . import functions
from .vec import vkeep, vload, vstore, vstore_part


def make(isa: str, algorithm: str, chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    """Return the kernel of an algorithm and a chain of post-ops, and its signature."""
    apply = functions.eltwise(algorithm)
    finish = functions.post_ops(chain)

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int,
        length: int, chunk: int, period: int, tail: int, alpha: float, beta: float,
    ) -> None:  # fmt: skip
        a, b = np.float32(alpha), np.float32(beta)
        pieces = (length + chunk - 1) // chunk
        for item in range(begin, end):
            block = item // pieces
            first = (item - block * pieces) * chunk
            count = min(chunk, length - first)
            lanes = tail if block % period == period - 1 else 16
            offset = 4 * (block * length + first)
            for at in range(offset, offset + 4 * (count & -16), 64):
                value = finish(apply(vload(src + at), a, b), other + at)
                vstore(dst + at, vkeep(value, lanes))
            if count & 15:
                at = offset + 4 * (count & -16)
                value = finish(apply(vload(src + at), a, b), other + at)
                vstore_part(dst + at, value, count & 15)

    return kernel, types.void(*[types.int64] * 9, types.float64, types.float64)
