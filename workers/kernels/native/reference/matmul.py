"""Multiply matrices; an item is an element of dst. Both factors have records of the batch dimensions of dst.

Products of integers whose arithmetic wraps are exact, without attributes and bias.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .data_types import load, read_whole
from .epilogue import finish, put_whole, quantised, wraps_as
from .scalars import read_s64
from .tensor import at, base, dim, dtype, rank


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, weights, dst, chain, operands)."""

    def matmul(begin: int, end: int, src: int, weights: int, dst: int, chain: int, operands: Any) -> None:
        last = rank(dst) - 1
        depth, columns = dim(src, last), dim(dst, last)
        src_type, weights_type = dtype(src), dtype(weights)
        whole = read_s64(chain) == 0 and wraps_as(src, weights) and wraps_as(src, dst)
        for item in range(begin, end):
            row = item // columns
            column = item - row * columns
            matrix = row // dim(dst, last - 1)
            left = base(operands, src) + at(src, last - 1, row - matrix * dim(dst, last - 1))
            right = base(operands, weights) + at(weights, last, column)
            rest = matrix
            for axis in range(last - 2, -1, -1):
                outer = rest // dim(dst, axis)
                index = rest - outer * dim(dst, axis)
                left += at(src, axis, index)
                right += at(weights, axis, index)
                rest = outer
            if whole:
                found = 0
                for k in range(depth):
                    x = read_whole(left + at(src, last, k), src_type)
                    found += x * read_whole(right + at(weights, last - 1, k), weights_type)
                put_whole(operands, dst, item, found)
                continue
            total = 0.0
            for k in range(depth):
                a = load(left + at(src, last, k), src_type)
                b = load(right + at(weights, last - 1, k), weights_type)
                a = quantised(operands, src, row * depth + k, a)
                total += a * quantised(operands, weights, (matrix * depth + k) * columns + column, b)
            finish(operands, dst, chain, item, total)

    return matmul, types.void(*[types.int64] * 6, types.voidptr)
