"""Comparisons, operators of booleans, and choices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from ..call import NodeCall, Operator
from ..tensors import Operand, dtype_of


def comparison(algorithm: str) -> Operator:
    """Return the operator that compares two tensors."""
    return lambda call: call.math.binary(call.operand(0), call.operand(1), algorithm)


def combination(algorithm: str) -> Operator:
    """Return the operator that combines booleans."""

    def operator(call: NodeCall) -> Operand:
        for index in range(2):
            if dtype_of(call.operand(index)) != "bool":
                raise call.malformed(f"input {index} is of type {dtype_of(call.operand(index))}; expect bool")
        return call.math.binary(call.operand(0), call.operand(1), algorithm)

    return operator


def inverse(call: NodeCall) -> Operand:
    """Return whether a boolean is false."""
    return call.math.logical_not(call.operand(0))


def where(call: NodeCall) -> Operand:
    """Choose between two tensors."""
    return call.math.select(*(call.operand(index) for index in range(3)))


def is_nan(call: NodeCall) -> Operand:
    """Return whether a number differs from itself."""
    return call.math.binary(call.real(0), call.real(0), "ne")


def is_infinite(call: NodeCall) -> Operand:
    """Compare with infinity; attributes may leave out either sign."""
    source = call.real(0)
    bounds = [
        bound
        for name, bound in (("detect_negative", -math.inf), ("detect_positive", math.inf))
        if call.integer(name, 1)
    ]
    if not bounds:
        return call.math.expand(np.zeros((1,) * len(source.shape), np.bool_), source.shape)
    # Of both infinities, the last bound is the positive one.
    size = source if len(bounds) == 1 else call.math.eltwise(source, "abs")
    return call.math.binary(size, call.math.number(bounds[-1], source), "eq")


def dropout(call: NodeCall) -> Operand | tuple[Operand, ...]:
    """Return the operand, of which inference drops nothing, and a mask that says so."""
    source = call.operand(0)
    if call.has(2) and bool(call.known(2, "training_mode").any()):
        ratio = float(call.known(1, "ratio").reshape(())) if call.has(1) else 0.5
        if ratio:
            raise call.unsupported("training_mode is true")
    if 1 not in call.outputs:
        return source
    mask = call.math.expand(np.ones((1,) * len(source.shape), np.bool_), source.shape)
    return source, call.math.cast(mask, "bool" if call.opset >= 10 else dtype_of(source))


OPERATORS: Final[Mapping[str, Operator]] = {
    "Equal": comparison("eq"),
    "Less": comparison("lt"),
    "LessOrEqual": comparison("le"),
    "Greater": comparison("gt"),
    "GreaterOrEqual": comparison("ge"),
    "And": combination("and"),
    "Or": combination("or"),
    "Xor": combination("xor"),
    "Not": inverse,
    "Where": where,
    "IsNaN": is_nan,
    "IsInf": is_infinite,
    "Dropout": dropout,
}
