"""Functions of one variable in float64 as oneDNN defines them; alpha and beta are their parameters."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ...codes import ELTWISE

RELU: Final = ELTWISE["relu"]
TANH: Final = ELTWISE["tanh"]
ELU: Final = ELTWISE["elu"]
SQUARE: Final = ELTWISE["square"]
ABS: Final = ELTWISE["abs"]
SQRT: Final = ELTWISE["sqrt"]
LINEAR: Final = ELTWISE["linear"]
LOGISTIC: Final = ELTWISE["logistic"]
EXP: Final = ELTWISE["exp"]
LOG: Final = ELTWISE["log"]
CLIP: Final = ELTWISE["clip"]
CLIP_V2: Final = ELTWISE["clip_v2"]
GELU_ERF: Final = ELTWISE["gelu_erf"]
GELU_TANH: Final = ELTWISE["gelu_tanh"]
HARDSWISH: Final = ELTWISE["hardswish"]
HARDSIGMOID: Final = ELTWISE["hardsigmoid"]
SOFTPLUS: Final = ELTWISE["softplus"]
SWISH: Final = ELTWISE["swish"]
MISH: Final = ELTWISE["mish"]
POW: Final = ELTWISE["pow"]
ROUND: Final = ELTWISE["round"]
FLOOR: Final = ELTWISE["floor"]
CEIL: Final = ELTWISE["ceil"]
TRUNC: Final = ELTWISE["trunc"]
ERF: Final = ELTWISE["erf"]
SIN: Final = ELTWISE["sin"]
COS: Final = ELTWISE["cos"]
SOFTSIGN: Final = ELTWISE["softsign"]
TAN: Final = ELTWISE["tan"]
ATAN: Final = ELTWISE["atan"]
ASIN: Final = ELTWISE["asin"]
ACOS: Final = ELTWISE["acos"]
SIGN: Final = ELTWISE["sign"]
THRESHOLD: Final = ELTWISE["threshold"]

SQRT_HALF: Final = math.sqrt(0.5)
SQRT_2_OVER_PI: Final = math.sqrt(2.0 / math.pi)
#: gelu_tanh's coefficient of the cube (Hendrycks and Gimpel, arXiv:1606.08415).
CUBE: Final = 0.044715


def eltwise(algorithm: int, x: float, alpha: float, beta: float) -> float:
    """Return f(x); NaN gives NaN, but 0 for a threshold."""
    if algorithm == RELU:
        # Not alpha * x if alpha is 0: the product with minus infinity would be NaN.
        return x if x > 0.0 or x != x else (alpha * x if alpha != 0.0 else 0.0)
    if algorithm == TANH:
        return math.tanh(x)
    if algorithm == ELU:
        return x if x >= 0.0 else alpha * math.expm1(x)
    if algorithm == SQUARE:
        return x * x
    if algorithm == ABS:
        return math.fabs(x)
    if algorithm == SQRT:
        return math.sqrt(x)
    if algorithm == LINEAR:
        return alpha * x + beta
    if algorithm == LOGISTIC:
        return logistic(x)
    if algorithm == EXP:
        return math.exp(x)
    if algorithm == LOG:
        return math.log(x)
    if algorithm in (CLIP, CLIP_V2):
        return clipped(x, alpha, beta)
    if algorithm == GELU_ERF:
        return 0.5 * x * math.erfc(-x * SQRT_HALF)
    if algorithm == GELU_TANH:
        return x * logistic(2.0 * SQRT_2_OVER_PI * x * (1.0 + CUBE * x * x))
    if algorithm == HARDSWISH:
        return x * clipped(alpha * x + beta, 0.0, 1.0)
    if algorithm == HARDSIGMOID:
        return clipped(alpha * x + beta, 0.0, 1.0)
    if algorithm == SOFTPLUS:
        return softplus(alpha * x) / alpha
    if algorithm == SWISH:
        return x * logistic(alpha * x)
    if algorithm == MISH:
        return x * math.tanh(softplus(x))
    if algorithm == POW:
        return alpha * math.pow(x, beta)
    if algorithm == FLOOR:
        return np.floor(x)
    if algorithm == CEIL:
        return np.ceil(x)
    if algorithm == TRUNC:
        return np.trunc(x)
    if algorithm == ERF:
        return math.erf(x)
    if algorithm == SIN:
        return math.sin(x)
    if algorithm == COS:
        return math.cos(x)
    if algorithm == TAN:
        return math.tan(x)
    if algorithm == ATAN:
        return math.atan(x)
    if algorithm == ASIN:
        return math.asin(x)
    if algorithm == ACOS:
        return math.acos(x)
    if algorithm == SOFTSIGN:
        return x / (1.0 + math.fabs(x))
    if algorithm == SIGN:
        return 1.0 if x > 0.0 else (-1.0 if x < 0.0 else x)
    if algorithm == THRESHOLD:
        return x if x > alpha else 0.0
    return np.rint(x)


def logistic(x: float) -> float:
    """Return 1 / (1 + exp(-x)), precise if it is small."""
    small = math.exp(-math.fabs(x))
    return (small if x < 0.0 else 1.0) / (1.0 + small)


def softplus(x: float) -> float:
    """Return ln(1 + exp(x))."""
    return (0.0 if x < 0.0 else x) + math.log1p(math.exp(-math.fabs(x)))


def clipped(x: float, low: float, high: float) -> float:
    """Return x, at least ``low``, then at most ``high``."""
    raised = low if x < low else x
    return high if raised > high else raised
