"""Functions of one variable as oneDNN defines them; alpha and beta are its parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _logistic(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + small), small / (1 + small)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


FUNCTIONS: dict[str, Callable[[Array, float, float], Array]] = {
    # A negative slope of 0 gives 0 at minus infinity too, where the product would be NaN.
    "relu": lambda x, a, b: np.where(x > 0, x, a * x) if a else np.maximum(x, 0),
    "tanh": lambda x, a, b: np.tanh(x),
    "elu": lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
    "square": lambda x, a, b: x * x,
    "abs": lambda x, a, b: np.abs(x),
    "sqrt": lambda x, a, b: np.sqrt(x),
    "linear": lambda x, a, b: a * x + b,
    "logistic": lambda x, a, b: _logistic(x),
    "exp": lambda x, a, b: np.exp(x),
    "log": lambda x, a, b: np.log(x),
    "clip": lambda x, a, b: np.minimum(np.maximum(x, a), b),
    "gelu_erf": lambda x, a, b: 0.5 * x * _erfc(-x / math.sqrt(2)),
    "hardswish": lambda x, a, b: x * np.clip(a * x + b, 0, 1),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "softplus": lambda x, a, b: _softplus(a * x) / a,
    "swish": lambda x, a, b: x * _logistic(a * x),
    "mish": lambda x, a, b: x * np.tanh(_softplus(x)),
    "clip_v2": lambda x, a, b: np.minimum(np.maximum(x, a), b),
    # Not 1 + tanh, which cancels.
    "gelu_tanh": lambda x, a, b: x * _logistic(math.sqrt(8 / math.pi) * x * (1 + 0.044715 * x * x)),
    # Not a number as the exponent: NumPy takes 0.5 for a square root, which has no value at minus infinity.
    "pow": lambda x, a, b: a * np.power(x, np.full_like(x, b)),
    "round": lambda x, a, b: np.rint(x),
    "floor": lambda x, a, b: np.floor(x),
    "ceil": lambda x, a, b: np.ceil(x),
    "trunc": lambda x, a, b: np.trunc(x),
    "erf": lambda x, a, b: _erf(x),
    "sin": lambda x, a, b: np.sin(x),
    "cos": lambda x, a, b: np.cos(x),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "tan": lambda x, a, b: np.tan(x),
    "atan": lambda x, a, b: np.arctan(x),
    "asin": lambda x, a, b: np.arcsin(x),
    "acos": lambda x, a, b: np.arccos(x),
    "sign": lambda x, a, b: np.sign(x),
    "threshold": lambda x, a, b: np.where(x > a, x, 0),
}


def eltwise(algorithm: str, x: Array, alpha: float, beta: float) -> Array:
    """Return f(x) in float64; invalid arguments (log of a negative number) give NaN without a warning.

    The parameters are float32 values, as they are for every engine.
    """
    with np.errstate(all="ignore"):
        return np.asarray(FUNCTIONS[algorithm](x, float(np.float32(alpha)), float(np.float32(beta))))
