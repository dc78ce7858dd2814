"""The shape of a batched matrix product, and places and distances of its matrices in memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...desc import MemoryDesc
from ..program import LaunchArgument


class Shape(NamedTuple):
    """Products of ``rows`` x ``depth`` x ``columns``; the ``batch`` has the outer indices of (left, right) of each."""

    rows: int
    depth: int
    columns: int
    batch: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    @classmethod
    def broadcast(cls, left: MemoryDesc, right: MemoryDesc, dst: MemoryDesc) -> Shape:
        """Return the shape of a product of (..., M, K) by (..., K, N) with broadcast batch dimensions."""
        *outer, rows, columns = dst.dims
        batch = []
        for number in range(math.prod(outer)):
            index = []
            for size in reversed(outer):
                index.append(number % size)
                number //= size
            index.reverse()
            batch.append((_clip(index, left.dims[:-2]), _clip(index, right.dims[:-2])))
        return cls(rows, left.dims[-1], columns, tuple(batch))


def packed_tag(ndims: int) -> str:
    """Return the tag of (..., K, N) with 16 columns side by side: ``Ba16b`` for 2."""
    letters = "abcdefghijkl"[:ndims]
    return f"{letters[:-2]}{letters[-1].upper()}{letters[-2]}16{letters[-1]}"


def transposed_tag(ndims: int) -> str:
    """Return the tag of (..., K, N) with the inputs of each column side by side: ``ba`` for 2."""
    letters = "abcdefghijkl"[:ndims]
    return f"{letters[:-2]}{letters[-1]}{letters[-2]}"


def moved(place: LaunchArgument, nbytes: int) -> LaunchArgument:
    """Return a place of memory, tables or scratchpad some bytes on; a number stays what it is."""
    kind, where = place
    if kind == "m" and isinstance(where, tuple):
        return ("m", (where[0], where[1] + nbytes))
    return (kind, int(where) + nbytes) if kind in "st" and isinstance(where, int) else place


def _clip(index: list[int], dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return an index of the whole batch as one of a factor, which may broadcast."""
    return tuple(i if size > 1 else 0 for i, size in zip(index, dims, strict=True))


def flat_index(index: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """Return the row-major number of an index."""
    flat = 0
    for i, size in zip(index, dims, strict=True):
        flat = flat * size + i
    return flat


def offset(index: tuple[int, ...], strides: Sequence[int]) -> int:
    """Return the distance of an index from the first element; strides of inner dimensions are left out."""
    return sum(i * stride for i, stride in zip(index, strides, strict=False))
