"""Linear models: sums of columns times coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...call import NodeCall, Operator
from ...folding import Array
from ...tensors import Operand, shape_of
from .features import floats
from .scores import best_label, class_labels, label_above, scores_of_two, transform


def _sums(call: NodeCall, rows: int) -> Operand:
    """Return sums of columns times coefficients, of which there are as many rows, and intercepts."""
    m, source = call.math, floats(call)
    if len(source.shape) == 1:
        source = m.reshape(source, (1, -1))
    columns = shape_of(source)[1]
    coefficients: Array = np.asarray(call.numbers("coefficients"), np.float32)
    if coefficients.size != rows * columns:
        raise call.malformed(f"{coefficients.size} coefficients for {columns} columns and {rows} sums")
    found = m.matmul(source, np.ascontiguousarray(coefficients.reshape(rows, columns).T))
    if not call.attrs.get("intercepts"):
        return found
    intercepts: Array = np.asarray(call.numbers("intercepts"), np.float32)
    if intercepts.size != rows:
        raise call.malformed(f"{intercepts.size} intercepts for {rows} sums")
    return m.binary(found, intercepts, "add")


def regress(call: NodeCall) -> Operand:
    """Return the sums of each row."""
    return transform(call, _sums(call, max(1, call.integer("targets", 1))))


def classify(call: NodeCall) -> tuple[Operand, ...]:
    """Return the label of the greatest sum, and the scores; of two classes, there may be the sum of the second only."""
    labels = class_labels(call, "classlabels_ints")
    rows = len(call.numbers("coefficients")) // max(1, call.shape(0)[-1])
    sums = _sums(call, rows)
    if rows > 1:
        return best_label(call, sums, labels), transform(call, sums)
    if labels.size != 2:
        raise call.unsupported(f"one row of coefficients for {labels.size} labels; expect two labels")
    return label_above(call, sums, 0.0, labels), scores_of_two(call, sums, True)


OPERATORS: Final[Mapping[str, Operator]] = {"LinearClassifier": classify, "LinearRegressor": regress}
