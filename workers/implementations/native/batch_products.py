"""Which two matrices each product of a batch multiplies, by their numbers in memory."""

from __future__ import annotations

import itertools
import math

from ...desc import Matmul, MemoryDesc
from .product_shape import Shape


def batch_products(op: Matmul) -> tuple[int, list[tuple[int, int]], list[int]]:
    """Return the rows of a product, the numbers of both matrices of each, and the offsets of the right ones in bytes."""
    if math.prod(op.weights.dims[:-2]) == 1:
        return math.prod(op.dst.dims[:-1]), [(0, 0)], [0]
    shape = Shape.broadcast(op.src, op.weights, op.dst)
    lefts, rights = _numbers(op.src), _numbers(op.weights)
    strides = op.weights.outer_strides()[:-2]
    offsets = [sum(n * stride for n, stride in zip(index, strides, strict=True)) for index in rights]
    return shape.rows, [(lefts[left], rights[right]) for left, right in shape.batch], offsets


def _numbers(md: MemoryDesc) -> dict[tuple[int, ...], int]:
    """Return the number of each matrix of a batch by its index."""
    return {index: number for number, index in enumerate(itertools.product(*map(range, md.dims[:-2])))}
