"""Attention, and rotations of what it compares."""

from __future__ import annotations

from collections.abc import Sequence

from poolrt.workers.desc import MemoryDesc, OpDesc

from .result import Attrs, Operation, describe_result


def attention(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe the attention of a query to keys and values, with an optional mask."""
    query, key, value, *mask = srcs
    for name, desc in (("query", query), ("key", key), ("value", value)):
        if desc.ndims != 4:
            raise ValueError(f"{name}: expect (batch, heads, rows, columns), got {desc.dims}")
    dst = describe_result(query, dtype, (*query.dims[:3], value.dims[3]))
    return op(query, key, value, mask[0] if mask else None, dst, **attrs)


def rotary(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe pairs of elements of rows, rotated by angles."""
    src, cosine, sine = srcs
    return op(src, cosine, sine, describe_result(src, dtype), **attrs)
