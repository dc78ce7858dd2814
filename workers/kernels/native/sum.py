"""Add one to four tensors, run by run, in any layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from . import functions
from .vec import vadd, vkeep, vload, vstore, vstore_part

MOST = 4


def make(isa: str, count: int, chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    """Return the kernel that adds ``count`` sources and applies a chain of post-ops, and its signature."""
    if not 1 <= count <= MOST:
        raise ValueError(f"count must be 1 to {MOST}, got {count}")
    finish = functions.post_ops(chain)

    def kernel(
        begin: int, end: int, src0: int, src1: int, src2: int, src3: int, dst: int, other: int,
        length: int, chunk: int, period: int, tail: int,
    ) -> None:  # fmt: skip
        pieces = (length + chunk - 1) // chunk
        for item in range(begin, end):
            block = item // pieces
            first = (item - block * pieces) * chunk
            size = min(chunk, length - first)
            lanes = tail if block % period == period - 1 else 16
            offset = 4 * (block * length + first)
            for at in range(offset, offset + 4 * size, 64):
                value = vload(src0 + at)
                if count > 1:
                    value = vadd(value, vload(src1 + at))
                if count > 2:
                    value = vadd(value, vload(src2 + at))
                if count > 3:
                    value = vadd(value, vload(src3 + at))
                value = finish(value, other + at)
                left = (offset + 4 * size - at) >> 2
                if left >= 16:
                    vstore(dst + at, vkeep(value, lanes))
                else:
                    vstore_part(dst + at, value, left)

    return kernel, types.void(*[types.int64] * 12)
