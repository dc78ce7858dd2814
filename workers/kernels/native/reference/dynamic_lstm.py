"""Run LSTM cells whose states are quantised before they are multiplied; an item is all.

States are kept in float64 in the scratchpad: h, its bytes less their zero point, and c, of all sequences each. The range of h is
that of its numbers rounded to float32, as in `dynamic_quantise`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..compiler import types
from .byte_range import byte_of, narrow, point_of, step_of
from .data_types import load, store
from .functions import logistic
from .scalars import read_f64, write_f64
from .tensor import at, base, dim, dtype


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel of the arguments' records, then (backwards, scratch, operands).

    The records are those of src, src_iter, src_iter_c, weights, scales, points, dst, dst_iter_c, 0 if there is none.
    """

    def dynamic_lstm(
        begin: int, end: int, src: int, src_iter: int, src_iter_c: int, weights: int, scales: int, points: int, dst: int,
        dst_iter_c: int, backwards: int, scratch: int, operands: Any,
    ) -> None:  # fmt: skip
        steps, batch, hidden = dim(src, 0), dim(src, 1), dim(src, 3)
        count = batch * hidden
        if begin < end and count > 0:
            h, less, c = scratch, scratch + 8 * count, scratch + 16 * count
            for place in range(count):
                n, k = place // hidden, place % hidden
                first, second = 0.0, 0.0
                if src_iter != 0:
                    first = _of_two(operands, src_iter, n, k)
                    second = _of_two(operands, src_iter_c, n, k)
                write_f64(h + 8 * place, first)
                write_f64(c + 8 * place, second)
            for number in range(steps):
                step = steps - 1 - number if backwards else number
                scale = _quantise(h, less, count)
                for place in range(count):
                    n, k = place // hidden, place % hidden
                    first = _gate(operands, src, weights, scales, points, step, n, 0, k, less, scale)
                    forget = _gate(operands, src, weights, scales, points, step, n, 1, k, less, scale)
                    new = _gate(operands, src, weights, scales, points, step, n, 2, k, less, scale)
                    output = _gate(operands, src, weights, scales, points, step, n, 3, k, less, scale)
                    state = logistic(forget) * read_f64(c + 8 * place) + logistic(first) * math.tanh(new)
                    write_f64(c + 8 * place, state)
                    value = logistic(output) * math.tanh(state)
                    write_f64(h + 8 * place, value)
                    to = base(operands, dst) + at(dst, 0, step) + at(dst, 1, n) + at(dst, 2, k)
                    store(to, dtype(dst), value)
            for place in range(count):
                n, k = place // hidden, place % hidden
                to = base(operands, dst_iter_c) + at(dst_iter_c, 0, n) + at(dst_iter_c, 1, k)
                store(to, dtype(dst_iter_c), read_f64(c + 8 * place))

    return dynamic_lstm, types.void(*[types.int64] * 12, types.voidptr)


def _of_two(operands: Any, record: int, row: int, column: int) -> float:
    """Return an element of a tensor of rank 2."""
    return load(base(operands, record) + at(record, 0, row) + at(record, 1, column), dtype(record))


def _quantise(h: int, less: int, count: int) -> float:
    """Write the bytes of a state less their zero point, and return their scale."""
    least, most, is_number = 0.0, 0.0, True
    for number in range(count):
        value = narrow(read_f64(h + 8 * number))
        is_number &= value == value
        if value < least:
            least = value
        if value > most:
            most = value
    if not is_number:
        least, most = 0.0, 0.0
    step = step_of(least, most)
    point = point_of(least, step)
    for number in range(count):
        write_f64(less + 8 * number, byte_of(read_f64(h + 8 * number), step, point) - point)
    return step


def _gate(
    operands: Any, src: int, weights: int, scales: int, points: int, step: int, n: int, gate: int, k: int, less: int,
    scale: float,
) -> float:  # fmt: skip
    """Return a gate before its function."""
    hidden = dim(src, 3)
    column = base(operands, weights) + at(weights, 1, gate) + at(weights, 2, k)
    point, total = 0.0, 0.0
    if points != 0:
        point = _of_two(operands, points, gate, k)
    for j in range(hidden):
        weight = load(column + at(weights, 0, j), dtype(weights)) - point
        total += weight * read_f64(less + 8 * (n * hidden + j))
    place = base(operands, src) + at(src, 0, step) + at(src, 1, n) + at(src, 2, gate) + at(src, 3, k)
    return load(place, dtype(src)) + total * scale * _of_two(operands, scales, gate, k)
