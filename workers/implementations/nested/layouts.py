"""Tensors viewed as matrices in place: dimensions that follow one another in memory become one."""

from __future__ import annotations

import math

from ...desc import MemoryDesc

_LETTERS = "abcdefghijkl"


def transposed(md: MemoryDesc) -> MemoryDesc:
    """Return the transposed view of a matrix."""
    if md.strides:
        return MemoryDesc(md.dims[::-1], md.dtype, strides=md.strides[::-1])
    return MemoryDesc(md.dims[::-1], md.dtype, md.tag if md.is_any else md.tag.translate(_TURNED))


def inner_order(md: MemoryDesc) -> tuple[int, ...]:
    """Return the order of the dimensions behind the first in memory, or their own order if they are no run of it."""
    order: tuple[int, ...] = () if md.is_any else tuple(dim for dim in md.layout.order if dim)
    return order if order and collapsed(md, order) is not None else tuple(range(1, md.ndims))


def collapsed(md: MemoryDesc, inner: tuple[int, ...]) -> MemoryDesc | None:
    """Return the view of a tensor as a matrix (first dimension, all others), the others in the order ``inner``.

    None if these are blocked, have gaps, or do not follow one another. A matrix is its own view.
    """
    if md.ndims == 2:
        return md
    if md.strides or any(dim for dim, _ in md.layout.blocks):
        return None
    order = list(md.layout.order)
    at = order.index(inner[0])
    if tuple(order[at : at + len(inner)]) != inner:
        return None
    rows = "A" if md.layout.blocks else "a"
    blocks = "".join(f"{size}a" for _, size in md.layout.blocks)
    tag = (f"b{rows}" if at == 0 else f"{rows}b") + blocks
    return MemoryDesc((md.dims[0], math.prod(md.dims[1:])), md.dtype, tag)


def expanded(matrix: MemoryDesc, dims: tuple[int, ...], inner: tuple[int, ...]) -> MemoryDesc:
    """Return the tensor that `collapsed` views as a matrix; row-major if its second dimension is blocked or has gaps."""
    if matrix.ndims == len(dims):
        return matrix
    if matrix.strides or any(dim for dim, _ in matrix.layout.blocks):
        return MemoryDesc(dims, matrix.dtype)
    return MemoryDesc(dims, matrix.dtype, matrix.tag.replace("b", "".join(_LETTERS[dim] for dim in inner)))


_TURNED = str.maketrans("abAB", "baBA")
