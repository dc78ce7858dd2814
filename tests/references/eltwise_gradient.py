"""Derivatives of functions of one variable, and of those that allow it, as functions of their results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Derivative = Callable[[Array, float, float], Array]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(x / 2)))


def _gelu_tanh(x: Array, a: float, b: float) -> Array:
    c = math.sqrt(2 / math.pi)
    t = np.tanh(c * (x + 0.044715 * x**3))
    return np.asarray(0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x))


def _mish(x: Array, a: float, b: float) -> Array:
    t = np.tanh(np.logaddexp(0, x))
    return np.asarray(t + x * (1 - t * t) * _sigmoid(x))


FROM_SRC: dict[str, Derivative] = {
    "relu": lambda x, a, b: np.where(x > 0, 1, a),
    "tanh": lambda x, a, b: 1 / np.cosh(x) ** 2,
    "elu": lambda x, a, b: np.where(x > 0, 1, a * np.exp(np.minimum(x, 0))),
    "square": lambda x, a, b: 2 * x,
    "abs": lambda x, a, b: np.sign(x),
    "sqrt": lambda x, a, b: 0.5 / np.sqrt(x),
    "linear": lambda x, a, b: np.full(x.shape, a),
    "logistic": lambda x, a, b: _sigmoid(x) * _sigmoid(-x),
    "exp": lambda x, a, b: np.exp(x),
    "log": lambda x, a, b: 1 / x,
    "clip": lambda x, a, b: ((x > a) & (x <= b)).astype(np.float64),
    "clip_v2": lambda x, a, b: ((x > a) & (x < b)).astype(np.float64),
    "gelu_erf": lambda x, a, b: 0.5 * (1 + _erf(x / math.sqrt(2))) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "gelu_tanh": _gelu_tanh,
    "hardswish": lambda x, a, b: np.where(a * x + b <= 0, 0, np.where(a * x + b >= 1, 1, 2 * a * x + b)),
    "hardsigmoid": lambda x, a, b: np.where((a * x + b <= 0) | (a * x + b >= 1), 0, a),
    "softplus": lambda x, a, b: _sigmoid(a * x),
    "swish": lambda x, a, b: _sigmoid(a * x) * (1 + a * x * _sigmoid(-a * x)),
    "mish": _mish,
    "pow": lambda x, a, b: a * b * np.power(x, b - 1) if b else np.zeros(x.shape),
    "erf": lambda x, a, b: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "sin": lambda x, a, b: np.cos(x),
    "cos": lambda x, a, b: -np.sin(x),
    "softsign": lambda x, a, b: 1 / (1 + np.abs(x)) ** 2,
    "tan": lambda x, a, b: 1 / np.cos(x) ** 2,
    "atan": lambda x, a, b: 1 / (1 + x * x),
    "asin": lambda x, a, b: 1 / np.sqrt((1 - x) * (1 + x)),
    "acos": lambda x, a, b: -1 / np.sqrt((1 - x) * (1 + x)),
    "threshold": lambda x, a, b: (x > a).astype(np.float64),
}
FROM_DST: dict[str, Derivative] = {
    "relu": lambda y, a, b: np.where(y > 0, 1, a),
    "tanh": lambda y, a, b: 1 - y * y,
    "elu": lambda y, a, b: np.where(y > 0, 1, y + a),
    "sqrt": lambda y, a, b: 1 / (2 * y),
    "logistic": lambda y, a, b: y - y * y,
    "exp": lambda y, a, b: y,
    "clip_v2": lambda y, a, b: ((y > a) & (y < b)).astype(np.float64),
}


def eltwise_gradient(
    algorithm: str, data: Array, diff_dst: Array, alpha: float, beta: float, use_dst: bool = False
) -> Array:
    """Return the gradient of src in float64; ``data`` is src, or with ``use_dst`` dst."""
    derivative = (FROM_DST if use_dst else FROM_SRC)[algorithm]
    with np.errstate(all="ignore"):
        return np.asarray(diff_dst * derivative(data, float(np.float32(alpha)), float(np.float32(beta))))
