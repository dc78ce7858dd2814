"""Functions of two variables in float64 as oneDNN defines them."""

from __future__ import annotations

from typing import Final

from ...codes import BINARY
from .scalars import piece

ADD: Final = BINARY["add"]
SUB: Final = BINARY["sub"]
MUL: Final = BINARY["mul"]
DIV: Final = BINARY["div"]
MAX: Final = BINARY["max"]
MIN: Final = BINARY["min"]
GE: Final = BINARY["ge"]
GT: Final = BINARY["gt"]
LE: Final = BINARY["le"]
LT: Final = BINARY["lt"]
EQ: Final = BINARY["eq"]


@piece
def binary(algorithm: int, x: float, y: float) -> float:
    """Return x (op) y: max and min return y if either is NaN, comparisons 1 or 0."""
    if algorithm == ADD:
        return x + y
    if algorithm == SUB:
        return x - y
    if algorithm == MUL:
        return x * y
    if algorithm == DIV:
        return x / y
    if algorithm == MAX:
        return x if x > y else y
    if algorithm == MIN:
        return x if x < y else y
    if algorithm == GE:
        holds = x >= y
    elif algorithm == GT:
        holds = x > y
    elif algorithm == LE:
        holds = x <= y
    elif algorithm == LT:
        holds = x < y
    elif algorithm == EQ:
        holds = x == y
    else:
        holds = x != y
    return 1.0 if holds else 0.0
