"""Trigonometric functions: a graph has them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..call import Operator


def _same(algorithm: str) -> Operator:
    """Return the operator of a function that a graph has."""
    return lambda call: call.math.eltwise(call.real(0), algorithm)


OPERATORS: Final[Mapping[str, Operator]] = {
    "Sin": _same("sin"),
    "Cos": _same("cos"),
    "Tan": _same("tan"),
    "Asin": _same("asin"),
    "Acos": _same("acos"),
    "Atan": _same("atan"),
}
