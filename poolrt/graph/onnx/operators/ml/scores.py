"""What classifiers and regressors make of sums: scores, and the label of the greatest."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...call import NodeCall
from ...folding import Array
from ...rearranging import arg_reduce
from ...tensors import Operand, shape_of

#: Numbers of this size at most count as zeros in SOFTMAX_ZERO, as in ONNX Runtime.
_ZERO: Final = 1e-7
#: Values of ``post_transform``.
TRANSFORMS: Final = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def class_labels(call: NodeCall, name: str, texts: str = "classlabels_strings") -> Array:
    """Return the labels of the classes, whole numbers. Raises UnsupportedNode if they are texts."""
    if texts in call.attrs:
        raise call.unsupported("labels that are texts: a graph has none; sessions do: poolrt.onnx.InferenceSession")
    labels: Array = np.asarray(call.integers(name, most=None), np.int64)
    if not labels.size:
        raise call.malformed(f"{name}: expect labels")
    return labels


def best_label(call: NodeCall, sums: Operand, labels: Array) -> Operand:
    """Return the label of the greatest sum of each row, the first of equal ones."""
    if shape_of(sums)[1] != labels.size:
        raise call.malformed(f"{shape_of(sums)[1]} sums for {labels.size} labels")
    return call.math.take(labels, arg_reduce(call.math, sums, "max", 1, False, False), 0)


def label_above(call: NodeCall, sums: Operand, limit: float, labels: Array) -> Operand:
    """Return the second label for a sum above a limit, else the first; sums have one column."""
    m = call.math
    is_above = m.cast(m.binary(m.squeeze(sums, (1,)), m.number(limit, sums), "gt"), "int64")
    return m.take(labels, is_above, 0)


def both(call: NodeCall, sums: Operand, first: Operand) -> Operand:
    """Return a column for the first class, and the sums for the second."""
    return call.math.concat([first, sums], 1)


def scores_of_two(call: NodeCall, sums: Operand, is_chance: bool, is_row: bool = False) -> Operand:
    """Return scores of two classes from the sums of the second; the first has what is left to 1 of chances, else the opposite.

    As in ONNX Runtime, ``LOGISTIC`` takes no sums for chances, and no other transform changes scores unless they are a row.
    """
    kind = call.text("post_transform", "NONE")
    rest = call.math.eltwise(sums, "linear", -1.0, 1.0 if is_chance and kind != "LOGISTIC" else 0.0)
    unchanged = kind in TRANSFORMS and kind != "LOGISTIC" and not is_row
    return transform(call, both(call, sums, rest), "NONE" if unchanged else kind)


def transform(call: NodeCall, sums: Operand, kind: str | None = None) -> Operand:
    """Apply the function that the attribute ``post_transform`` names to each row; a row of one number stays as it is.

    So it is in ONNX Runtime.
    """
    m = call.math
    kind = call.text("post_transform", "NONE") if kind is None else kind
    if kind == "NONE" or (kind in TRANSFORMS and shape_of(sums)[1] == 1):
        return sums
    if kind == "LOGISTIC":
        return m.eltwise(sums, "logistic")
    if kind == "SOFTMAX":
        return m.graph.softmax(m.value(sums), 1, name=m.name("softmax"))
    if kind == "SOFTMAX_ZERO":
        is_number = m.binary(m.eltwise(sums, "abs"), m.number(_ZERO, sums), "gt")
        # Zeros stay zeros: they have no share of the sum.
        powers = m.eltwise(m.binary(sums, m.reduce(sums, "max", (1,), True), "sub"), "exp")
        kept = m.select(is_number, powers, m.expand(m.number(0, sums), shape_of(sums)))
        total = m.reduce(kept, "sum", (1,), True)
        return m.binary(kept, total, "div")
    raise call.unsupported(f"post_transform {kind} is not supported; {', '.join(TRANSFORMS)} are")
