"""Functions of two variables in float64 as oneDNN defines them."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ...codes import BINARY
from .data_types import S8, S16, S32, S64, U64, is_less

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
POW: Final = BINARY["pow"]
BIT_AND: Final = BINARY["bit_and"]
BIT_OR: Final = BINARY["bit_or"]
BIT_XOR: Final = BINARY["bit_xor"]
SHIFT_LEFT: Final = BINARY["shift_left"]
WRAP_ADD: Final = BINARY["wrap_add"]
WRAP_SUB: Final = BINARY["wrap_sub"]
WRAP_POW: Final = BINARY["wrap_pow"]
WRAP_ABS_DIFF: Final = BINARY["wrap_abs_diff"]


def binary(algorithm: int, x: float, y: float) -> float:
    """Return x (op) y: max and min are NaN if either is, comparisons and logic 1 or 0. Whole quotients by 0 are NaN."""
    if algorithm == ADD:
        return x + y
    if algorithm == SUB:
        return x - y
    if algorithm == MUL:
        return x * y
    if algorithm == DIV:
        return x / y
    if algorithm == MAX:
        return x if x > y or x != x else y
    if algorithm == MIN:
        return x if x < y or x != x else y
    if algorithm == POW:
        return math.pow(x, y)
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


def divides(algorithm: int) -> bool:
    """Return whether a function is a quotient or remainder: of integers it is 0 if src1 is 0."""
    return algorithm == DIV or XOR < algorithm < POW


def has_whole(algorithm: int) -> bool:
    """Return whether `whole_binary` has a function."""
    return (ADD <= algorithm <= MIN and algorithm != DIV) or GE <= algorithm <= NE


def whole_binary(algorithm: int, x: int, y: int, code: int) -> int:
    """Return x (op) y of integers of a type as int64, those of u64 by their bits; only low bits of a result count."""
    if algorithm == ADD:
        return x + y
    if algorithm == SUB:
        return x - y
    if algorithm == MUL:
        return x * y
    less, more = is_less(x, y, code), is_less(y, x, code)
    if algorithm in (MAX, MIN):
        return x if (less if algorithm == MIN else more) else y
    if algorithm in (GE, LT):
        return 1 if less == (algorithm == LT) else 0
    if algorithm in (GT, LE):
        return 1 if more == (algorithm == GT) else 0
    return 1 if (x == y) == (algorithm == EQ) else 0


def bitwise(algorithm: int, x: int, y: int, code: int, bits: int) -> int:
    """Return a function of the bits of integers of a type as int64, those of u64 by their bits; only low bits count."""
    if algorithm == BIT_AND:
        return x & y
    if algorithm == BIT_OR:
        return x | y
    if algorithm == BIT_XOR:
        return x ^ y
    if algorithm == WRAP_POW:
        return whole_power(x, y, code)
    if algorithm == WRAP_ABS_DIFF:
        return y - x if is_less(x, y, code) else x - y
    if algorithm >= WRAP_ADD:
        return x + y if algorithm == WRAP_ADD else x - y if algorithm == WRAP_SUB else x * y
    large = y < 0 or y >= bits
    if algorithm == SHIFT_LEFT:
        return 0 if large else x << y
    if code == U64 and x < 0:
        return 0 if large else x if y == 0 else (x >> 1 & (1 << 63) - 1) >> (y - 1)
    return x >> (bits - 1 if large else y) if code in (S64, S32, S16, S8) else 0 if large else x >> y


def whole_power(x: int, y: int, code: int) -> int:
    """Return the low bits of a power; a negative exponent gives 0 unless x is 1 or -1."""
    if y < 0 and code != U64:
        if x != 1 and x != -1:
            return 0
        y &= 1
    found = 1
    while y != 0:
        if y & 1:
            found *= x
        x *= x
        y = y >> 1 & (1 << 63) - 1
    return found


def divided(algorithm: int, x: float, y: float) -> float:
    """Return a remainder or a whole quotient, NaN if y is 0."""
    if y == 0.0:
        return math.nan
    if algorithm in (MOD, FMOD):
        rest = np.fmod(x, y)
        return rest + y if algorithm == MOD and rest != 0.0 and (rest < 0.0) != (y < 0.0) else rest
    return np.floor(x / y) if algorithm == FLOOR_DIV else np.trunc(x / y)
