"""What the kernels of a storm compute, in NumPy."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

SHAPE: Final = (16, 100)
#: alpha and beta of the algorithms that have them.
PARAMETERS: Final = {"elu": (1.0, 0.0), "clip": (-1.0, 1.0), "hardswish": (1 / 6, 0.5)}
_CHECKS: Final[dict[str, Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "square": np.square,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "exp": np.exp,
    "log": np.log,
    "clip": lambda x: np.clip(x, -1, 1),
    "gelu_erf": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
}


def source() -> Any:
    """Return what the kernels are applied to."""
    return np.linspace(0.01, 4, math.prod(SHAPE), dtype=np.float32).reshape(SHAPE)


def check(name: str, result: Any) -> None:
    """Raise AssertionError unless a kernel's result is right."""
    np.testing.assert_allclose(result, _CHECKS[name](source().astype(np.float64)), rtol=2e-6, atol=1e-6)
