"""The mean of values for each query, weighted by the softmax of its scores; an item is a query.

The scores are computed twice, for the largest and for the weights. An item has ``width`` float64 of the scratchpad.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import fetch, finish
from .scalars import read_f64, write_f64
from .tensor import dim


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (query, key, value, mask, dst, chain, masked, shared, keys, depth, width, causal, scratch, scale).

    ``masked`` is 0 without a mask, 1 if it is added, 2 if it is a truth value; ``shared`` heads have one key. The operands
    are last.
    """

    def attention(
        begin: int, end: int, query: int, key: int, value: int, mask: int, dst: int, chain: int, masked: int, shared: int,
        keys: int, depth: int, width: int, causal: int, scratch: int, scale: float, operands: Any,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            rows = dim(dst, 2)
            head = item // rows
            first = head // shared * keys
            count = keys
            if causal != 0:
                count = min(keys, item - head * rows + 1 + keys - rows)
            largest = -math.inf
            for number in range(count):
                x = _score(operands, query, key, mask, masked, item, first + number, item * keys + number, depth, scale)
                largest = largest if largest > x or x != x else x
            sums = scratch + 8 * item * width
            for index in range(width):
                write_f64(sums + 8 * index, 0.0)
            total = 0.0
            if largest == -math.inf:
                largest = 0.0
            for number in range(count):
                x = _score(operands, query, key, mask, masked, item, first + number, item * keys + number, depth, scale)
                if x != -math.inf:
                    weight = math.exp(x - largest)
                    total += weight
                    for index in range(width):
                        place = sums + 8 * index
                        given = fetch(operands, value, (first + number) * width + index)
                        write_f64(place, read_f64(place) + weight * given)
            for index in range(width):
                mean = read_f64(sums + 8 * index)
                if total != 0.0:
                    mean = mean / total
                finish(operands, dst, chain, item * width + index, mean)

    return attention, types.void(*[types.int64] * 15, types.float64, types.voidptr)


def _score(
    operands: Any,
    query: int,
    key: int,
    mask: int,
    masked: int,
    row: int,
    number: int,
    place: int,
    depth: int,
    scale: float,
) -> float:
    """Return the score of a key for a query with the mask: minus infinity if the key is excluded."""
    bias = 0.0
    if masked != 0:
        bias = fetch(operands, mask, place)
        if masked == 2:
            if bias == 0.0:
                return -math.inf
            bias = 0.0
    total = 0.0
    for index in range(depth):
        total += fetch(operands, query, row * depth + index) * fetch(operands, key, number * depth + index)
    return total * scale + bias
