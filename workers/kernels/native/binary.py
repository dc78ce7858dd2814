"""Combine two tensors with broadcasting: rows of a dense destination, each operand with strides of its own.

A destination is outer x mid x inner elements. Along ``inner`` an operand either advances by one element or stays, which
the kernel is specialised for; along ``mid`` it has a stride; the outer dimensions are in a table of
(extent, stride of the first operand, stride of the second), innermost first. Strides are in elements. The channel block
of an outer index is ``outer // below % period``; the last block of a period holds only ``tail`` lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from . import functions
from .vec import iload, vbroadcast, vkeep, vload, vstore, vstore_part


def make(isa: str, algorithm: str, moves: tuple[bool, bool], chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature; ``moves`` says which operands advance along ``inner``."""
    first_moves, second_moves = moves
    combine = functions.binary(algorithm)
    finish = functions.post_ops(chain)

    def kernel(
        begin: int, end: int, src0: int, src1: int, dst: int, other: int, table: int, outer_dims: int,
        mid: int, mid_stride0: int, mid_stride1: int, mid_chunk: int, inner: int, inner_chunk: int,
        below: int, period: int, tail: int,
    ) -> None:  # fmt: skip
        inner_pieces = (inner + inner_chunk - 1) // inner_chunk
        mid_pieces = (mid + mid_chunk - 1) // mid_chunk
        for item in range(begin, end):
            rest = item // inner_pieces
            x0 = (item - rest * inner_pieces) * inner_chunk
            outer = rest // mid_pieces
            m0 = (rest - outer * mid_pieces) * mid_chunk
            count = min(inner_chunk, inner - x0)
            whole = 4 * (count & -16)
            left = count & 15
            lanes = tail if (outer // below) % period == period - 1 else 16
            a, b = src0 + 4 * m0 * mid_stride0, src1 + 4 * m0 * mid_stride1
            index = outer
            for level in range(outer_dims):
                extent = iload(table + 24 * level)
                position = index % extent
                index //= extent
                a += 4 * position * iload(table + 24 * level + 8)
                b += 4 * position * iload(table + 24 * level + 16)
            if first_moves:
                a += 4 * x0
            if second_moves:
                b += 4 * x0
            to = 4 * ((outer * mid + m0) * inner + x0)
            for _ in range(m0, min(mid, m0 + mid_chunk)):
                x, y = vbroadcast(a), vbroadcast(b)
                for at in range(0, whole, 64):
                    if first_moves:
                        x = vload(a + at)
                    if second_moves:
                        y = vload(b + at)
                    value = finish(combine(x, y), other + to + at)
                    vstore(dst + to + at, vkeep(value, lanes))
                if left:
                    if first_moves:
                        x = vload(a + whole)
                    if second_moves:
                        y = vload(b + whole)
                    value = finish(combine(x, y), other + to + whole)
                    vstore_part(dst + to + whole, value, left)
                a += 4 * mid_stride0
                b += 4 * mid_stride1
                to += 4 * inner

    return kernel, types.void(*[types.int64] * 17)
