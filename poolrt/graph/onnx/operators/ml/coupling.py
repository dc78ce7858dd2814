"""Chances of classes from those of pairs of classes, as libsvm computes them (Wu, Lin and Weng, 2004, their second way)."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np

from ...call import NodeCall
from ...folding import Array
from ...tensors import Operand, Tensors, shape_of

#: Chances of a pair of classes are no nearer to 0 and 1.
_LEAST: Final = 1e-7
#: libsvm takes up to 100 sweeps over the classes, and stops at an error below 0.005 / classes. Chances of pairs at random take
#: five at most, also those next to 0 and 1.
_SWEEPS: Final = 5
#: A sweep is a dozen steps of a run for each class.
_MOST_CLASSES: Final = 32


def couple(call: NodeCall, sums: Operand, classes: int) -> Operand:
    """Return the chance of each class, (rows, classes), from the sums of pairs of classes, (rows, pairs)."""
    m, pairs = call.math, classes * (classes - 1) // 2
    slopes, shifts = (np.asarray(call.numbers(name), np.float32) for name in ("prob_a", "prob_b"))
    if slopes.size != pairs or shifts.size != pairs:
        raise call.malformed(f"prob_a, prob_b: {slopes.size} and {shifts.size} numbers for {pairs} pairs of classes")
    if classes > _MOST_CLASSES:
        raise call.unsupported(f"chances of {classes} classes; {_MOST_CLASSES} at most are supported")
    first = m.eltwise(m.binary(m.binary(sums, -slopes, "mul"), -shifts, "add"), "logistic")
    first = m.eltwise(first, "clip", _LEAST, float(np.float32(1) - np.float32(_LEAST)))
    second = m.eltwise(first, "linear", -1.0, 1.0)
    products = _products(m, first, second, classes)
    rows = shape_of(sums)[0]
    own = m.reduce(m.binary(products, np.eye(classes, dtype=np.float32), "mul"), "sum", (2,), False)
    inverse = m.binary(m.number(1, own), own, "div")
    nothing = m.expand(m.number(0, own), (rows, classes))
    units = m.expand(np.eye(classes, dtype=np.float32)[None], (rows, classes, classes))
    # What a class adds to the chances, and to the products of them
    adds = m.concat([units, products], 2)
    chances: Operand = m.expand(np.full((1, classes), 1 / classes, np.float32), (rows, classes))
    for _ in range(_SWEEPS):
        multiplied = m.reduce(m.binary(products, m.unsqueeze(chances, (1,)), "mul"), "sum", (2,), False)
        total = m.reduce(m.binary(chances, multiplied, "mul"), "sum", (1,), True)
        error = m.reduce(m.eltwise(m.binary(multiplied, total, "sub"), "abs"), "max", (1,), True)
        is_open = m.expand(m.binary(error, m.number(0.005 / classes, error), "ge"), (rows, classes))
        # Rows that are near enough stay as they are.
        steps = m.select(is_open, inverse, nothing)
        state = m.concat([chances, multiplied], 1)
        for one in range(classes):
            mine = _column(m, state, classes + one)
            change = m.binary(m.binary(total, mine, "sub"), _column(m, steps, one), "mul")
            scale = m.eltwise(change, "linear", 1.0, 1.0)
            state = m.binary(state, m.binary(change, _row(m, adds, one), "mul"), "add")
            state = m.binary(state, scale, "div")
            more = m.binary(m.binary(change, _column(m, own, one), "mul"), m.eltwise(mine, "linear", 2.0, 0.0), "add")
            total = m.binary(total, m.binary(change, more, "mul"), "add")
            total = m.binary(m.binary(total, scale, "div"), scale, "div")
        chances = m.slice(state, [0], [classes], [1], [1])
    return chances


def _products(m: Tensors, first: Operand, second: Operand, classes: int) -> Operand:
    """Return the matrix of each row whose products with chances are to be equal for all classes."""
    pairs = list(itertools.combinations(range(classes), 2))
    places: Array = np.full((classes, classes), 2 * len(pairs), np.int64)
    for pair, (one, other) in enumerate(pairs):
        places[one, other], places[other, one] = pair, len(pairs) + pair
    zeros = m.expand(m.number(0, first), (shape_of(first)[0], 1))
    table = m.concat([first, second, zeros], 1)
    # The chance of the class of a row of the matrix against that of a column, and the other way round
    wins, losses = m.take(table, places, 1), m.take(table, np.ascontiguousarray(places.T), 1)
    own = m.reduce(m.eltwise(losses, "square"), "sum", (2,), True)
    apart = m.eltwise(m.binary(wins, losses, "mul"), "linear", -1.0, 0.0)
    return m.binary(apart, m.binary(own, np.eye(classes, dtype=np.float32), "mul"), "add")


def _column(m: Tensors, table: Operand, place: int) -> Operand:
    return m.slice(table, [place], [place + 1], [1], [1])


def _row(m: Tensors, matrices: Operand, place: int) -> Operand:
    return m.squeeze(m.slice(matrices, [place], [place + 1], [1], [1]), (1,))
