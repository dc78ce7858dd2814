"""Trigonometric functions; those that a graph does not have are computed by those that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from ...values import Value
from ..call import NodeCall, Operator
from ..tensors import Operand, Tensors, dtype_of


def _of(known: np.ufunc, computed: Callable[[Tensors, Operand], Operand]) -> Operator:
    """Return the operator of a function that NumPy has for known arrays, and operations of float32 or float64 for others."""

    def operator(call: NodeCall) -> Operand:
        source = call.real(0)
        if not isinstance(source, Value):
            return call.folding.apply(known, source)
        dtype = dtype_of(source)
        wide = "float64" if dtype == "float64" else "float32"
        return call.math.cast(computed(call.math, call.math.cast(source, wide)), dtype)

    return operator


def _same(algorithm: str) -> Operator:
    """Return the operator of a function that a graph has."""
    return lambda call: call.math.eltwise(call.real(0), algorithm)


def _asin(m: Tensors, x: Operand) -> Operand:
    rest = m.binary(m.eltwise(x, "linear", -1.0, 1.0), m.eltwise(x, "linear", 1.0, 1.0), "mul")
    return m.eltwise(m.binary(x, m.eltwise(rest, "sqrt"), "div"), "atan")


def _acos(m: Tensors, x: Operand) -> Operand:
    # As twice an arc tangent, which is precise at 1, too.
    quotient = m.binary(m.eltwise(x, "linear", -1.0, 1.0), m.eltwise(x, "linear", 1.0, 1.0), "div")
    return m.eltwise(m.eltwise(m.eltwise(quotient, "sqrt"), "atan"), "linear", 2.0)


OPERATORS: Final[Mapping[str, Operator]] = {
    "Sin": _same("sin"),
    "Cos": _same("cos"),
    "Tan": _same("tan"),
    "Asin": _of(np.arcsin, _asin),
    "Acos": _of(np.arccos, _acos),
    "Atan": _same("atan"),
}
