"""Support vector machines: kernels between rows and support vectors, and the votes of pairs of classes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Final

import numpy as np

from ...call import NodeCall, Operator
from ...folding import Array
from ...tensors import Operand, shape_of
from .coupling import couple
from .features import floats
from .scores import best_label, class_labels, scores_of_two, transform


def regress(call: NodeCall) -> Operand:
    """Return the sum of the kernels with support vectors times coefficients, or on which side of 0 it is."""
    m, source = call.math, floats(call)
    coefficients: Array = np.asarray(call.numbers("coefficients"), np.float32)
    shift: Array = np.asarray(call.numbers("rho")[:1], np.float32)
    if call.integer("n_supports", 0) > 0:
        source = _kernels(call, source, call.integer("n_supports", 0))
    if coefficients.size != shape_of(source)[1] or not shift.size:
        raise call.malformed(f"{coefficients.size} coefficients for {shape_of(source)[1]} columns")
    found = m.binary(m.matmul(source, coefficients[:, None]), shift, "add")
    if call.integer("one_class", 0):
        is_inside = m.cast(m.binary(found, m.number(0, found), "gt"), "float32")
        found = m.eltwise(is_inside, "linear", 2.0, -1.0)
    return transform(call, found)


def classify(call: NodeCall) -> tuple[Operand, ...]:
    """Return the label that most pairs of classes vote for, the first of equal ones, and the sum of each pair.

    Instead of sums, the chance of each class is returned if there are numbers for it.
    """
    m, source, labels = call.math, floats(call), class_labels(call, "classlabels_ints")
    counts: Array = np.asarray(call.integers("vectors_per_class", (), most=None), np.int64)
    count, classes = int(counts.sum()), labels.size
    if counts.size != classes or classes < 2 or counts.min() < 0 or count == 0:
        raise call.unsupported(
            f"support vectors of {counts.size} classes for {classes} labels; expect as many, 2 at least"
        )
    coefficients: Array = np.asarray(call.numbers("coefficients"), np.float32)
    shifts: Array = np.asarray(call.numbers("rho"), np.float32)
    if coefficients.size != (classes - 1) * count or shifts.size != classes * (classes - 1) // 2:
        raise call.malformed(f"{coefficients.size} coefficients and {shifts.size} shifts for {classes} classes")
    pairs = list(itertools.combinations(range(classes), 2))
    rows = coefficients.reshape(classes - 1, count)
    owner = np.repeat(np.arange(classes), counts)
    weights: Array = np.zeros((count, len(pairs)), np.float32)
    won: Array = np.zeros((len(pairs), classes), np.float32)
    lost: Array = np.zeros_like(won)
    for pair, (one, other) in enumerate(pairs):
        weights[:, pair] = np.where(owner == one, rows[other - 1], np.where(owner == other, rows[one], 0))
        won[pair, one] = lost[pair, other] = 1
    sums = m.binary(m.matmul(_kernels(call, source, count), weights), shifts, "add")
    wins = m.cast(m.binary(sums, m.number(0, sums), "gt"), "float32")
    votes = m.binary(m.matmul(wins, won - lost), lost.sum(0), "add")
    if call.attrs.get("prob_a"):
        return best_label(call, votes, labels), transform(call, couple(call, sums, classes))
    if classes > 2:
        return best_label(call, votes, labels), transform(call, sums)
    # With a transform of rows, ONNX Runtime takes the sums for chances.
    is_chance = call.text("post_transform", "NONE") != "NONE"
    return best_label(call, votes, labels), scores_of_two(call, sums, is_chance)


def _kernels(call: NodeCall, rows: Operand, count: int) -> Operand:
    """Return the kernel of each row with each support vector."""
    m, kind, columns = call.math, call.text("kernel_type", "LINEAR"), shape_of(rows)[1]
    vectors: Array = np.asarray(call.numbers("support_vectors"), np.float32)
    if vectors.size != count * columns:
        raise call.malformed(f"{vectors.size} numbers of {count} support vectors of {columns} columns")
    vectors = vectors.reshape(count, columns)
    gamma, shift, degree = (
        (*call.numbers("kernel_params"), 0.0, 0.0, 0.0)[:3] if "kernel_params" in call.attrs else (0.0,) * 3
    )
    products = m.matmul(rows, np.ascontiguousarray(vectors.T))
    if kind == "LINEAR":
        return products
    if kind == "RBF":
        # |a - b|^2 = |a|^2 + |b|^2 - 2 a b, of numbers around 0: digits of large ones would be lost.
        centre = vectors.mean(0)
        rows, vectors = m.binary(rows, centre, "sub"), vectors - centre
        products = m.matmul(rows, np.ascontiguousarray(vectors.T))
        own = m.reduce(m.eltwise(rows, "square"), "sum", (1,), True)
        apart = m.binary(
            m.eltwise(products, "linear", -2.0, 0.0), m.binary(own, np.square(vectors).sum(1), "add"), "add"
        )
        return m.eltwise(m.eltwise(apart, "linear", -gamma, 0.0), "exp")
    scaled = m.eltwise(products, "linear", gamma, shift)
    if kind == "SIGMOID":
        return m.eltwise(scaled, "tanh")
    if kind == "POLY":
        return m.eltwise(scaled, "pow", 1.0, degree)
    raise call.malformed(f"kernel_type: expect LINEAR, POLY, RBF or SIGMOID, got {kind!r}")


OPERATORS: Final[Mapping[str, Operator]] = {"SVMClassifier": classify, "SVMRegressor": regress}
