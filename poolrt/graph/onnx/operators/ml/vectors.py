"""Support vector machines: kernels between rows and support vectors, and the votes of pairs of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...call import NodeCall, Operator
from ...folding import Array
from ...tensors import Operand, shape_of
from .features import floats
from .scores import transform


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


OPERATORS: Final[Mapping[str, Operator]] = {"SVMRegressor": regress}
