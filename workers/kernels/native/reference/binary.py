"""Combine two tensors, broadcast to the destination; an item is an element of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .binaries import BIT_AND, GE, bitwise, divides, has_whole, whole_binary
from .binaries import binary as combine
from .data_types import bits_of_type, is_whole
from .epilogue import fetch, finish, put_whole, whole_element, wraps_as
from .scalars import read_s64
from .tensor import dtype


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src0, src1, dst, chain, algorithm, operands)."""

    def binary(begin: int, end: int, src0: int, src1: int, dst: int, chain: int, algorithm: int, operands: Any) -> None:
        bits = bits_of_type(dtype(dst))
        whole = has_whole(algorithm) and wraps_as(src0, src1)
        divided = divides(algorithm) and is_whole(dtype(src0)) and is_whole(dtype(src1))
        for item in range(begin, end):
            if algorithm >= BIT_AND:
                x, y = whole_element(operands, src0, item), whole_element(operands, src1, item)
                put_whole(operands, dst, item, bitwise(algorithm, x, y, dtype(src0), bits))
                continue
            if whole:
                x, y = whole_element(operands, src0, item), whole_element(operands, src1, item)
                found = whole_binary(algorithm, x, y, dtype(src0))
                if algorithm >= GE:
                    finish(operands, dst, chain, item, float(found))
                    continue
                if wraps_as(src0, dst) and read_s64(chain) == 0:
                    put_whole(operands, dst, item, found)
                    continue
            left, right = fetch(operands, src0, item), fetch(operands, src1, item)
            value = 0.0 if divided and right == 0.0 else combine(algorithm, left, right)
            finish(operands, dst, chain, item, value)

    return binary, types.void(*[types.int64] * 7, types.voidptr)
