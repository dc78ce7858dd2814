"""Add one to four tensors, run by run, in any layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...desc.data_type import WRAPPING
from . import functions
from .compiler import types
from .elements import elements
from .vec import vadd, vkeep
from .whole_numbers import whole_numbers

MOST = 4


def make(isa: str, count: int, dtype: str, chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    """Return the kernel that adds ``count`` sources and applies a chain of post-ops, and its signature."""
    if not 1 <= count <= MOST:
        raise ValueError(f"count must be 1 to {MOST}, got {count}")
    finish, finish_part = functions.post_ops(chain, dtype), functions.post_ops_part(chain, dtype)
    of: Any = elements(dtype)
    add = vadd
    if dtype in WRAPPING and not chain:
        of = whole_numbers(dtype, "add")
        add = of.combine
    width, load, load_tail, store, store_part = of.size, of.load, of.load_tail, of.store, of.store_part

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
            offset = width * (block * length + first)
            whole = offset + width * (size & -16)
            for at in range(offset, whole, 16 * width):
                value = load(src0 + at)
                if count > 1:
                    value = add(value, load(src1 + at))
                if count > 2:
                    value = add(value, load(src2 + at))
                if count > 3:
                    value = add(value, load(src3 + at))
                store(dst + at, vkeep(finish(value, other + at), lanes))
            left = size & 15
            if left:
                value = load_tail(src0 + whole, left)
                if count > 1:
                    value = add(value, load_tail(src1 + whole, left))
                if count > 2:
                    value = add(value, load_tail(src2 + whole, left))
                if count > 3:
                    value = add(value, load_tail(src3 + whole, left))
                store_part(dst + whole, finish_part(value, other + whole, left), left)

    return kernel, types.void(*[types.int64] * 12)
