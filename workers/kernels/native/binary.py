"""Combine two tensors with broadcasting: rows of a dense destination, each operand with strides of its own.

A destination is outer x mid x inner elements. Along ``inner`` an operand either advances by one element or stays, which
the kernel is specialised for; along ``mid`` it has a stride; the outer dimensions are in a table of
(extent, stride of the first operand, stride of the second), innermost first. Strides are in elements. The channel block
of an outer index is ``outer // below % period``; the last block of a period holds only ``tail`` lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...desc.data_type import LIMITS
from . import functions
from .compiler import types
from .compiler.language import intrinsic
from .elements import elements
from .past_caches import LINE, finish_streams, past_caches
from .vec import Builder, Value, constant, iload, vkeep
from .whole_numbers import has_whole_numbers, whole_numbers


@intrinsic
def _whole_quotient(_: Any, x: Any, y: Any) -> Any:
    """(lanes x, lanes y) -> x / y of whole numbers, 0 where y is 0."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        zero = constant(0.0, a[1].type)
        return b.select(b.fcmp_unordered("!=", a[1], zero), b.fdiv(a[0], a[1]), zero)

    return x(x, x), emit


def make(
    isa: str, algorithm: str, dtype: str, moves: tuple[bool, bool], chain: tuple[Any, ...], streams: bool = False
) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature; ``moves`` says which operands advance along ``inner``.

    If it ``streams``, results are written past the caches: see `past_caches`.
    """
    first_moves, second_moves = moves
    finish, finish_part = functions.post_ops(chain, dtype), functions.post_ops_part(chain, dtype)
    if has_whole_numbers(dtype, algorithm) and not chain:
        of: Any = whole_numbers(dtype, algorithm)
        combine = of.combine
    else:
        divides = algorithm == "div" and dtype in LIMITS
        of, combine = elements(dtype), _whole_quotient if divides else functions.binary(algorithm)
    size, load, load_tail, load_one = of.size, of.load, of.load_tail, of.load_one
    store, store_part = of.store, of.store_part
    stream: Any = past_caches(store)

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
            whole = size * (count & -16)
            left = count & 15
            lanes = tail if (outer // below) % period == period - 1 else 16
            a, b = src0 + size * m0 * mid_stride0, src1 + size * m0 * mid_stride1
            index = outer
            for level in range(outer_dims):
                extent = iload(table + 24 * level)
                position = index % extent
                index //= extent
                a += size * position * iload(table + 24 * level + 8)
                b += size * position * iload(table + 24 * level + 16)
            if first_moves:
                a += size * x0
            if second_moves:
                b += size * x0
            to = size * ((outer * mid + m0) * inner + x0)
            for _ in range(m0, min(mid, m0 + mid_chunk)):
                x, y = load_one(a), load_one(b)
                lines = not (dst + to) % LINE
                for at in range(0, whole, 16 * size):
                    if first_moves:
                        x = load(a + at)
                    if second_moves:
                        y = load(b + at)
                    value = finish(combine(x, y), other + to + at)
                    if streams and lines:
                        stream(dst + to + at, vkeep(value, lanes))
                    else:
                        store(dst + to + at, vkeep(value, lanes))
                if left:
                    if first_moves:
                        x = load_tail(a + whole, left)
                    if second_moves:
                        y = load_tail(b + whole, left)
                    value = finish_part(combine(x, y), other + to + whole, left)
                    store_part(dst + to + whole, value, left)
                a += size * mid_stride0
                b += size * mid_stride1
                to += size * inner
        if streams:
            finish_streams()

    return kernel, types.void(*[types.int64] * 17)
