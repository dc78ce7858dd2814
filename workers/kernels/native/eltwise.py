"""Apply a function of one variable to runs of elements in any layout; alpha and beta are given at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from . import functions
from .elements import elements
from .vec import vkeep


def make(isa: str, algorithm: str, dtype: str, chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    """Return the kernel of an algorithm on a data type and a chain of post-ops, and its signature."""
    apply = functions.eltwise(algorithm)
    finish, finish_part = functions.post_ops(chain, dtype), functions.post_ops_part(chain, dtype)
    of = elements(dtype)
    size, real = of.size, of.real
    load, load_tail, store, store_part = of.load, of.load_tail, of.store, of.store_part

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int,
        length: int, chunk: int, period: int, tail: int, alpha: float, beta: float,
    ) -> None:  # fmt: skip
        a, b = real(alpha), real(beta)
        pieces = (length + chunk - 1) // chunk
        for item in range(begin, end):
            block = item // pieces
            first = (item - block * pieces) * chunk
            count = min(chunk, length - first)
            lanes = tail if block % period == period - 1 else 16
            offset = size * (block * length + first)
            for at in range(offset, offset + size * (count & -16), 16 * size):
                value = finish(apply(load(src + at), a, b), other + at)
                store(dst + at, vkeep(value, lanes))
            if count & 15:
                at = offset + size * (count & -16)
                value = finish_part(apply(load_tail(src + at, count & 15), a, b), other + at, count & 15)
                store_part(dst + at, value, count & 15)

    return kernel, types.void(*[types.int64] * 9, types.float64, types.float64)
