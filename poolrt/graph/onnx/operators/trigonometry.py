"""Trigonometric functions; those that a graph does not have are computed in float64, by those that it has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from ...values import Value
from ..call import NodeCall, Operator
from ..tensors import Operand, Tensors, dtype_of

#: Terms of the series of the arc tangent, whose arguments are at most tan(pi / 16).
_ARC_TERMS: Final = 12


def function(known: np.ufunc, computed: Callable[[Tensors, Operand], Operand]) -> Operator:
    """Return the operator of a function that NumPy has for known arrays, and operations of float64 for others."""

    def operator(call: NodeCall) -> Operand:
        source = call.real(0)
        if not isinstance(source, Value):
            return call.folding.apply(known, source)
        return call.math.cast(computed(call.math, call.math.cast(source, "float64")), dtype_of(source))

    return operator


def _same(algorithm: str) -> Operator:
    """Return the operator of a function that a graph has."""
    return lambda call: call.math.eltwise(call.real(0), algorithm)


def _series(m: Tensors, x: Operand, coefficients: Sequence[float]) -> Operand:
    """Return x times a polynomial in x * x, whose coefficients begin with that of the highest power."""
    square = m.eltwise(x, "square")
    total = m.eltwise(square, "linear", coefficients[0], coefficients[1])
    for each in coefficients[2:]:
        total = m.eltwise(m.binary(total, square, "mul"), "linear", 1.0, each)
    return m.binary(total, x, "mul")


def _tan(m: Tensors, x: Operand) -> Operand:
    return m.binary(m.eltwise(x, "sin"), m.eltwise(x, "cos"), "div")


def _atan(m: Tensors, x: Operand) -> Operand:
    """Halve the angle three times, and add up the series of the arc tangent."""
    size = m.eltwise(x, "abs")
    above = m.binary(size, m.number(1, size), "gt")
    inner = m.select(above, m.binary(m.number(1, size), size, "div"), size)
    for _ in range(2):
        root = m.eltwise(m.eltwise(m.eltwise(inner, "square"), "linear", 1.0, 1.0), "sqrt")
        inner = m.binary(inner, m.eltwise(root, "linear", 1.0, 1.0), "div")
    terms = [4.0 * (-1) ** k / (2 * k + 1) for k in range(_ARC_TERMS)]
    angle = _series(m, inner, terms[::-1])
    whole = m.select(above, m.eltwise(angle, "linear", -1.0, math.pi / 2), angle)
    return m.select(m.binary(x, m.number(0, x), "lt"), m.eltwise(whole, "linear", -1.0), whole)


def _asin(m: Tensors, x: Operand) -> Operand:
    rest = m.binary(m.eltwise(x, "linear", -1.0, 1.0), m.eltwise(x, "linear", 1.0, 1.0), "mul")
    return _atan(m, m.binary(x, m.eltwise(rest, "sqrt"), "div"))


def _acos(m: Tensors, x: Operand) -> Operand:
    # As twice an arc tangent, which is precise at 1, too.
    quotient = m.binary(m.eltwise(x, "linear", -1.0, 1.0), m.eltwise(x, "linear", 1.0, 1.0), "div")
    return m.eltwise(_atan(m, m.eltwise(quotient, "sqrt")), "linear", 2.0)


OPERATORS: Final[Mapping[str, Operator]] = {
    "Sin": _same("sin"),
    "Cos": _same("cos"),
    "Tan": function(np.tan, _tan),
    "Asin": function(np.arcsin, _asin),
    "Acos": function(np.arccos, _acos),
    "Atan": function(np.arctan, _atan),
}
