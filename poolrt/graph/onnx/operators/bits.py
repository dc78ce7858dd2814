"""Integers as bits: shifts, and functions of each bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...values import Value
from ..call import NodeCall, Operator
from ..element_types import LIMITS, array_type
from ..tensors import Operand, array_dtype, dtype_of


def shift(call: NodeCall) -> Operand:
    """Shift bits; those that do not fit are lost."""
    direction = call.text("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise call.malformed(f"unknown direction {direction!r}")
    return _combined(call, f"shift_{direction.lower()}")


def inverted(call: NodeCall) -> Operand:
    """Return all bits inverted: -1 - x, or the largest number less x."""
    source, m = call.tensor(0), call.math
    dtype = dtype_of(source)
    if dtype not in LIMITS:
        raise call.unsupported(f"input 0 is of type {dtype}")
    whole = -1 if LIMITS[dtype][0] else LIMITS[dtype][1]
    return m.binary(m.number(whole, source), source, "sub")


def bit_cast(call: NodeCall) -> Operand:
    """Return the same bits as elements of another type of their size: known arrays of any type, and tensors of integers."""
    source, target = call.operand(0), array_type(call.integer("to"))
    given = array_dtype(dtype_of(source))
    if target is None or target.itemsize != given.itemsize:
        raise call.malformed(f"elements of type {given} are no elements of data type {call.integer('to')}")
    if not isinstance(source, Value):
        return np.ascontiguousarray(source).view(target).reshape(source.shape)
    if given == target:
        return source
    if given.name not in (*LIMITS, "bool") or target.name not in LIMITS:
        raise call.unsupported(f"bits of computed {given} as {target}; only those of integers are supported")
    # Casts of integers keep the bits that fit.
    return call.math.cast(source, target.name)


def bitwise(algorithm: str) -> Operator:
    """Return the operator that combines each bit of two integers."""
    return lambda call: _combined(call, algorithm)


def _combined(call: NodeCall, algorithm: str) -> Operand:
    left, right = call.tensor(0), call.tensor(1)
    if dtype_of(left) not in LIMITS:
        raise call.unsupported(f"input 0 is of type {dtype_of(left)}")
    return call.math.binary(left, right, algorithm)


OPERATORS: Final[Mapping[str, Operator]] = {
    "BitCast": bit_cast,
    "BitShift": shift,
    "BitwiseNot": inverted,
    "BitwiseAnd": bitwise("bit_and"),
    "BitwiseOr": bitwise("bit_or"),
    "BitwiseXor": bitwise("bit_xor"),
}
