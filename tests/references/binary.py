"""Functions of two variables with broadcasting, and the sum of many tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: A power by one number for many elements would be a square root, which differs at minus infinity and at -0.
FUNCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "max": np.maximum, "min": np.minimum,
    "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less, "eq": np.equal, "ne": np.not_equal,
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "fmod": np.fmod, "mod": np.mod,
    "floor_div": lambda x, y: np.where(y == 0, np.nan, np.floor(x / y)),
    "trunc_div": lambda x, y: np.where(y == 0, np.nan, np.trunc(x / y)),
    "pow": lambda x, y: np.power(*map(np.ascontiguousarray, np.broadcast_arrays(x, y))),
}  # fmt: skip
#: Of integers, these are 0 if the second is 0.
QUOTIENTS = ("div", "floor_div", "trunc_div", "mod", "fmod")


def binary(algorithm: str, left: Array, right: Array) -> Array:
    """Return left (op) right; dimensions of 1 are broadcast. Comparisons give 1 and 0."""
    with np.errstate(all="ignore"):
        return np.asarray(FUNCTIONS[algorithm](left, right), np.float64)


def bitwise(algorithm: str, left: Array, right: Array, dtype: np.dtype[Any]) -> Array:
    """Return a function of the bits of integers, which float64 holds; a number of places that is negative counts as large."""
    x, y = left.astype(dtype), right.astype(dtype)
    if algorithm.startswith("bit_"):
        function = {"bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor}[algorithm]
        return np.asarray(function(x, y), np.float64)
    if algorithm == "wrap_pow":
        unit = (x == 1) | (x + 1 == 0)
        return np.where((y < 0) & ~unit, 0, np.power(x, np.where(y < 0, y & 1, y))).astype(np.float64)
    if algorithm == "wrap_abs_diff":
        return np.asarray(np.where(x < y, y - x, x - y), np.float64)
    if algorithm.startswith("wrap_"):
        arithmetic = {"wrap_add": np.add, "wrap_sub": np.subtract, "wrap_mul": np.multiply}[algorithm]
        return np.asarray(arithmetic(x, y), np.float64)
    bits = 8 * dtype.itemsize
    large = (y < 0) | (y >= bits)
    places = np.where(large, 0, y).astype(dtype)
    if algorithm == "shift_left":
        return np.where(large, 0, np.left_shift(x, places)).astype(np.float64)
    nothing = np.where(x < 0, -1.0, 0.0)
    return np.where(large, nothing, np.right_shift(x, places))


def total(srcs: list[Array], scales: tuple[float, ...] = ()) -> Array:
    """Return the sum of arrays of one shape, each times its scale (a float32, as for every engine)."""
    return np.asarray(np.tensordot(np.asarray(scales or (1.0,) * len(srcs), np.float32).astype(np.float64), srcs, 1))
