"""Integers as bits: shifts, and functions of each bit, computed in float64 and exact for integers of up to 53 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...values import Value
from ..call import NodeCall, Operator
from ..element_types import LIMITS
from ..tensors import Operand, Tensors, dtype_of

#: Integers of more bits have too many to be taken apart.
_MOST_BITS: Final = 32


def shift(call: NodeCall) -> Operand:
    """Multiply or divide by a power of two; bits that do not fit are lost."""
    source, count, m = call.tensor(0), call.tensor(1), call.math
    direction = call.text("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise call.malformed(f"unknown direction {direction!r}")
    dtype = dtype_of(source)
    if dtype not in LIMITS:
        raise call.unsupported(f"input 0 is of type {dtype}")
    # Beyond 64 places nothing is left but the sign. A negative number counts as a large one.
    given, most = m.cast(m.value(count), "float64"), np.asarray(64.0)
    places = m.select(m.binary(given, np.asarray(0.0), "lt"), most, m.binary(given, most, "min"))
    exact = m.take(np.ldexp(1.0, np.arange(65)), m.cast(places, "int64"), 0)
    wide = m.cast(m.value(source), "float64")
    if direction == "RIGHT":
        return m.cast(m.floor(m.binary(wide, exact, "div")), dtype)
    return m.wrap(m.binary(wide, exact, "mul"), dtype)


def inverted(call: NodeCall) -> Operand:
    """Return all bits inverted: -1 - x, or the largest number less x."""
    source, m = call.tensor(0), call.math
    dtype = dtype_of(source)
    if dtype not in LIMITS:
        raise call.unsupported(f"input 0 is of type {dtype}")
    whole = -1 if LIMITS[dtype][0] else LIMITS[dtype][1]
    return m.binary(m.number(whole, source), m.value(source), "sub")


def bitwise(function: str, known: np.ufunc) -> Operator:
    """Return the operator that combines each bit of two integers."""

    def operator(call: NodeCall) -> Operand:
        left, right, m = call.tensor(0), call.tensor(1), call.math
        dtype = dtype_of(left)
        if not isinstance(left, Value) and not isinstance(right, Value):
            return call.folding.combine(known, left, right)
        if dtype not in LIMITS or np.dtype(dtype).itemsize * 8 > _MOST_BITS:
            raise call.unsupported(f"input 0 is of type {dtype}")
        bits = np.dtype(dtype).itemsize * 8
        weights = np.ldexp(1.0, np.arange(bits))
        apart = [_bits(m, m.value(each), weights) for each in (left, right)]
        combined = m.cast(m.binary(apart[0], apart[1], function), "float64")
        total = m.reduce(m.binary(combined, weights, "mul"), "sum", (len(combined.shape) - 1,), False)
        return m.wrap(total, dtype)

    return operator


def _bits(m: Tensors, x: Operand, weights: Operand) -> Operand:
    """Return whether each bit is set, along a new last dimension."""
    wide = m.unsqueeze(m.cast(x, "float64"), (len(x.shape),))
    half = m.eltwise(m.floor(m.binary(wide, weights, "div")), "linear", 0.5)
    return m.binary(half, m.floor(half), "ne")


OPERATORS: Final[Mapping[str, Operator]] = {
    "BitShift": shift,
    "BitwiseNot": inverted,
    "BitwiseAnd": bitwise("and", np.bitwise_and),
    "BitwiseOr": bitwise("or", np.bitwise_or),
    "BitwiseXor": bitwise("xor", np.bitwise_xor),
}
