"""Derivatives of functions of one variable in float64 as oneDNN defines them."""

from __future__ import annotations

import math
from typing import Final

from .functions import (
    ABS,
    ACOS,
    ASIN,
    ATAN,
    CLIP,
    CLIP_V2,
    COS,
    CUBE,
    ELU,
    ERF,
    EXP,
    GELU_ERF,
    GELU_TANH,
    HARDSIGMOID,
    HARDSWISH,
    LINEAR,
    LOG,
    LOGISTIC,
    MISH,
    POW,
    RELU,
    SIN,
    SOFTPLUS,
    SOFTSIGN,
    SQRT,
    SQRT_2_OVER_PI,
    SQRT_HALF,
    SQUARE,
    SWISH,
    TAN,
    TANH,
    THRESHOLD,
    logistic,
    softplus,
)

_TWICE_ROOT: Final = 2.0 / math.sqrt(math.pi)
_DENSITY: Final = 1.0 / math.sqrt(2.0 * math.pi)


def slope(algorithm: int, x: float, alpha: float, beta: float) -> float:
    """Return f'(x) of every algorithm that has one; NaN gives NaN if f' is not constant."""
    if algorithm == RELU:
        return 1.0 if x > 0.0 else alpha
    if algorithm == TANH:
        # Not 1 - tanh(x) ** 2, which cancels to nothing if tanh is nearly 1.
        return 4.0 * logistic(2.0 * x) * logistic(-2.0 * x)
    if algorithm == ELU:
        return 1.0 if x > 0.0 else alpha * math.exp(x)
    if algorithm == SQUARE:
        return 2.0 * x
    if algorithm == ABS:
        return 1.0 if x > 0.0 else (-1.0 if x < 0.0 else x)
    if algorithm == SQRT:
        return 0.5 / math.sqrt(x)
    if algorithm == LINEAR:
        return alpha
    if algorithm == LOGISTIC:
        return logistic(x) * logistic(-x)
    if algorithm == EXP:
        return math.exp(x)
    if algorithm == LOG:
        return 1.0 / x
    if algorithm == CLIP:
        return 1.0 if alpha < x <= beta else 0.0
    if algorithm == CLIP_V2:
        return 1.0 if alpha < x < beta else 0.0
    if algorithm == GELU_ERF:
        return 0.5 * math.erfc(-x * SQRT_HALF) + x * _DENSITY * math.exp(-0.5 * x * x)
    if algorithm == GELU_TANH:
        share = logistic(2.0 * SQRT_2_OVER_PI * x * (1.0 + CUBE * x * x))
        return share + share * (1.0 - share) * 2.0 * SQRT_2_OVER_PI * x * (1.0 + 3.0 * CUBE * x * x)
    if algorithm == HARDSWISH:
        line = alpha * x + beta
        return 0.0 if line <= 0.0 else (1.0 if line >= 1.0 else 2.0 * alpha * x + beta)
    if algorithm == HARDSIGMOID:
        line = alpha * x + beta
        return 0.0 if line <= 0.0 or line >= 1.0 else alpha
    if algorithm == SOFTPLUS:
        return logistic(alpha * x)
    if algorithm == SWISH:
        return logistic(alpha * x) * (1.0 + alpha * x * logistic(-alpha * x))
    if algorithm == MISH:
        part = math.tanh(softplus(x))
        return part + x * (1.0 - part * part) * logistic(x)
    if algorithm == ERF:
        return _TWICE_ROOT * math.exp(-x * x)
    if algorithm == SIN:
        return math.cos(x)
    if algorithm == COS:
        return -math.sin(x)
    if algorithm == TAN:
        return 1.0 / math.cos(x) ** 2
    if algorithm == ATAN:
        return 1.0 / (1.0 + x * x)
    if algorithm == ASIN:
        return 1.0 / math.sqrt((1.0 - x) * (1.0 + x))
    if algorithm == ACOS:
        return -1.0 / math.sqrt((1.0 - x) * (1.0 + x))
    if algorithm == SOFTSIGN:
        return 1.0 / (1.0 + math.fabs(x)) ** 2
    if algorithm == THRESHOLD:
        return 1.0 if x > alpha else 0.0
    # POW, the only one left; a power of 0 is constant, at x = 0 too.
    return alpha * beta * math.pow(x, beta - 1.0) if algorithm == POW and beta != 0.0 else 0.0


def slope_from_result(algorithm: int, y: float, alpha: float, beta: float) -> float:
    """Return f'(x) from y = f(x), of the algorithms that allow it."""
    if algorithm == RELU:
        return 1.0 if y > 0.0 else alpha
    if algorithm == TANH:
        return (1.0 - y) * (1.0 + y)
    if algorithm == ELU:
        return 1.0 if y > 0.0 else y + alpha
    if algorithm == SQRT:
        return 0.5 / y
    if algorithm == LOGISTIC:
        return y * (1.0 - y)
    if algorithm == EXP:
        return y
    return 1.0 if alpha < y < beta else 0.0
