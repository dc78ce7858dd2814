"""Records of tensors: data type, shape and layout as int64 in the tables; the place of an element is a sum over dims.

The record of a tensor, in int64::

    0  data type (the codes of `data_types`)      3  bytes from this record to that of its scales, 0 for none
    1  rank                                       4  bytes from this record to that of its zero points, 0 for none
    2  slot of its memory in the operands
    5 + 5 d  for dimension d: size · padded size · stride in bytes of its outer index · number of its inner blocks ·
             bytes from this record to its blocks, innermost first, each as (size, stride in bytes)

A tensor that is broadcast (the source of a binary post-op, a bias, scales) has a record of the shape that it is broadcast
to, with strides of 0; an index of the large tensor then finds the element.
"""

from __future__ import annotations

from typing import Any

from .scalars import operand, read_s64


def dtype(record: int) -> int:
    """Return the code of a tensor's data type."""
    return read_s64(record)


def rank(record: int) -> int:
    """Return the number of dimensions."""
    return read_s64(record + 8)


def dim(record: int, axis: int) -> int:
    """Return the size of a dimension, without padding."""
    return read_s64(record + 40 + 40 * axis)


def padded_dim(record: int, axis: int) -> int:
    """Return the size of a dimension with its padding."""
    return read_s64(record + 48 + 40 * axis)


def base(operands: Any, record: int) -> int:
    """Return the address of a tensor's memory."""
    return operand(operands, read_s64(record + 16))


def at(record: int, axis: int, index: int) -> int:
    """Return the part of one dimension's index in an element's place, in bytes."""
    start = record + 40 + 40 * axis
    place = 0
    block = record + read_s64(start + 32)
    for _ in range(read_s64(start + 24)):
        size = read_s64(block)
        outer = index // size
        place += (index - outer * size) * read_s64(block + 8)
        index = outer
        block += 16
    return place + index * read_s64(start + 16)


def where(record: int, item: int) -> int:
    """Return the place of an element in bytes, given by its number in row-major order of the dimensions."""
    place = 0
    for axis in range(rank(record) - 1, -1, -1):
        size = dim(record, axis)
        outer = item // size
        place += at(record, axis, item - outer * size)
        item = outer
    return place
