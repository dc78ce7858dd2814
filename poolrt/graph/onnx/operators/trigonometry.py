"""Trigonometric functions, in float64 by the operations that a graph has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from ...values import Value
from ..call import NodeCall, Operator
from ..tensors import Operand, Tensors, dtype_of

#: Terms of the series of the sine, whose arguments are at most pi / 2, and of the arc tangent, at most tan(pi / 16).
_SINE_TERMS: Final = 11
_ARC_TERMS: Final = 12
#: 2 pi as a sum of two numbers, the first with 33 bits: a multiple of up to 20 bits is exact.
_TURN: Final = (float.fromhex("0x1.921fb544p+2"), 2 * math.pi - float.fromhex("0x1.921fb544p+2"))


def function(known: np.ufunc, computed: Callable[[Tensors, Operand], Operand]) -> Operator:
    """Return the operator of a function that NumPy has for known arrays, and operations of float64 for others."""

    def operator(call: NodeCall) -> Operand:
        source = call.real(0)
        if not isinstance(source, Value):
            return call.folding.apply(known, source)
        return call.math.cast(computed(call.math, call.math.cast(source, "float64")), dtype_of(source))

    return operator


def _series(m: Tensors, x: Operand, coefficients: Sequence[float]) -> Operand:
    """Return x times a polynomial in x * x, whose coefficients begin with that of the highest power."""
    square = m.eltwise(x, "square")
    total = m.eltwise(square, "linear", coefficients[0], coefficients[1])
    for each in coefficients[2:]:
        total = m.eltwise(m.binary(total, square, "mul"), "linear", 1.0, each)
    return m.binary(total, x, "mul")


def _sine(m: Tensors, x: Operand, turns: Operand) -> Operand:
    """Return the sine of x less a number of turns."""
    rest = x
    for part in _TURN:
        rest = m.binary(rest, m.eltwise(turns, "linear", part), "sub")
    # sin(pi - r) is sin(r): what is beyond a quarter turn is folded back.
    size = m.eltwise(rest, "abs")
    folded = m.binary(size, m.eltwise(size, "linear", -1.0, math.pi), "min")
    terms = [(-1) ** k / math.factorial(2 * k + 1) for k in range(_SINE_TERMS)]
    negative = m.binary(rest, m.number(0, rest), "lt")
    found = _series(m, folded, terms[::-1])
    return m.select(negative, m.eltwise(found, "linear", -1.0), found)


def _sin(m: Tensors, x: Operand) -> Operand:
    return _sine(m, x, m.eltwise(m.eltwise(x, "linear", 1 / (2 * math.pi)), "round"))


def _cos(m: Tensors, x: Operand) -> Operand:
    # cos(x) is sin(x + pi / 2); the turns are taken off before the quarter is added.
    turns = m.eltwise(m.eltwise(x, "linear", 1 / (2 * math.pi)), "round")
    rest = x
    for part in _TURN:
        rest = m.binary(rest, m.eltwise(turns, "linear", part), "sub")
    quarter = m.eltwise(m.eltwise(rest, "abs"), "linear", -1.0, math.pi / 2)
    return _sine(m, quarter, m.number(0, quarter))


def _tan(m: Tensors, x: Operand) -> Operand:
    return m.binary(_sin(m, x), _cos(m, x), "div")


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
    "Sin": function(np.sin, _sin),
    "Cos": function(np.cos, _cos),
    "Tan": function(np.tan, _tan),
    "Asin": function(np.arcsin, _asin),
    "Acos": function(np.arccos, _acos),
    "Atan": function(np.arctan, _atan),
}
