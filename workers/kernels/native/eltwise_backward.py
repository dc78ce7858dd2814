"""Multiply gradients by the slopes of a function of one variable, on runs of elements in any layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .first_lanes import vstore_part
from .slopes import slope
from .vec import vkeep, vload, vmul, vstore


def make(isa: str, algorithm: str, from_result: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel of an algorithm, from src or ``from_result`` from dst, and its signature."""
    steep = slope(algorithm, from_result)

    def kernel(
        begin: int, end: int, data: int, diff_dst: int, diff_src: int,
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
                value = vmul(vload(diff_dst + at), steep(vload(data + at), a, b))
                vstore(diff_src + at, vkeep(value, lanes))
            if count & 15:
                at = offset + 4 * (count & -16)
                value = vmul(vload(diff_dst + at), steep(vload(data + at), a, b))
                vstore_part(diff_src + at, value, count & 15)

    return kernel, types.void(*[types.int64] * 9, types.float64, types.float64)
