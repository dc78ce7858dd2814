"""Functions of two variables in float64 as oneDNN defines them."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

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
NE: Final = BINARY["ne"]
AND: Final = BINARY["and"]
OR: Final = BINARY["or"]
XOR: Final = BINARY["xor"]
MOD: Final = BINARY["mod"]
FMOD: Final = BINARY["fmod"]
FLOOR_DIV: Final = BINARY["floor_div"]


@piece
def binary(algorithm: int, x: float, y: float) -> float:
    """Return x (op) y: max and min return y if either is NaN, comparisons and logic 1 or 0. Whole x / 0 are NaN."""
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
    if algorithm > XOR:
        return divided(algorithm, x, y)
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
    elif algorithm == NE:
        holds = x != y
    elif algorithm == AND:
        holds = x != 0.0 and y != 0.0
    elif algorithm == OR:
        holds = x != 0.0 or y != 0.0
    else:
        holds = (x != 0.0) != (y != 0.0)
    return 1.0 if holds else 0.0


@piece
def divided(algorithm: int, x: float, y: float) -> float:
    """Return a remainder or a whole quotient, NaN if y is 0."""
    if y == 0.0:
        return math.nan
    if algorithm in (MOD, FMOD):
        rest = np.fmod(x, y)
        return rest + y if algorithm == MOD and rest != 0.0 and (rest < 0.0) != (y < 0.0) else rest
    return np.floor(x / y) if algorithm == FLOOR_DIV else np.trunc(x / y)
