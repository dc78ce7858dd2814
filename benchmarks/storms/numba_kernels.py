"""The kernels of a storm as loops over arrays that Numba compiles; each takes alpha and beta, used or not."""

from __future__ import annotations

import math
from typing import Any, Final

SIGNATURE: Final = "void(float32[::1], float32[::1], float64, float64)"


def relu(src: Any, dst: Any, alpha: float, beta: float) -> None:
    for i in range(src.size):
        dst[i] = max(src[i], alpha * src[i])


def tanh(src: Any, dst: Any, alpha: float, beta: float) -> None:
    for i in range(src.size):
        dst[i] = math.tanh(src[i])


def elu(src: Any, dst: Any, alpha: float, beta: float) -> None:
    for i in range(src.size):
        dst[i] = src[i] if src[i] > 0 else alpha * math.expm1(src[i])


def square(src: Any, dst: Any, alpha: float, beta: float) -> None:
    for i in range(src.size):
        dst[i] = src[i] * src[i]


def abs(src: Any, dst: Any, alpha: float, beta: float) -> None:
    for i in range(src.size):
        dst[i] = math.fabs(src[i])


def sqrt(src: Any, dst: Any, alpha: float, beta: float) -> None:
    for i in range(src.size):
        dst[i] = math.sqrt(src[i])


def logistic(src: Any, dst: Any, alpha: float, beta: float) -> None:
    for i in range(src.size):
        dst[i] = 1 / (1 + math.exp(-src[i]))


def exp(src: Any, dst: Any, alpha: float, beta: float) -> None:
    for i in range(src.size):
        dst[i] = math.exp(src[i])


def log(src: Any, dst: Any, alpha: float, beta: float) -> None:
    for i in range(src.size):
        dst[i] = math.log(src[i])


def clip(src: Any, dst: Any, alpha: float, beta: float) -> None:
    for i in range(src.size):
        dst[i] = min(max(src[i], alpha), beta)


def gelu_erf(src: Any, dst: Any, alpha: float, beta: float) -> None:
    for i in range(src.size):
        dst[i] = 0.5 * src[i] * (1 + math.erf(src[i] / math.sqrt(2)))


def hardswish(src: Any, dst: Any, alpha: float, beta: float) -> None:
    for i in range(src.size):
        dst[i] = src[i] * min(max(alpha * src[i] + beta, 0), 1)
