"""The functions of one variable with their default parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from poolrt.workers.desc.attributes import ELTWISE_ALGORITHMS
from poolrt.workers.desc.typed import shorten, to_float

#: algorithm -> (alpha, beta); one that is missing has no parameters, 0 for both. None means that there is no default.
_DEFAULTS: Final[Mapping[str, tuple[float | None, float | None]]] = {
    "elu": (1.0, 0.0),
    # A sum with -0 keeps the sign of a product that is 0.
    "linear": (1.0, -0.0),
    "clip": (None, None),
    "clip_v2": (None, None),
    "pow": (1.0, None),
    "hardswish": (1 / 6, 0.5),
    "hardsigmoid": (1 / 6, 0.5),
    "softplus": (1.0, 0.0),
    "swish": (1.0, 0.0),
}


def complete_parameters(algorithm: str, alpha: float | None, beta: float | None) -> tuple[float, float]:
    """Return alpha and beta, the algorithm's defaults for None. Raises ValueError naming the argument."""
    if str(algorithm) not in ELTWISE_ALGORITHMS:
        raise ValueError(f"algorithm: unknown {shorten(algorithm)}; known: {', '.join(ELTWISE_ALGORITHMS)}")
    result = []
    for name, given, usual in zip(("alpha", "beta"), (alpha, beta), _DEFAULTS.get(algorithm, (0.0, 0.0)), strict=True):
        chosen = usual if given is None else given
        if chosen is None:
            raise ValueError(f"{name}: {algorithm} needs it")
        result.append(to_float(name, chosen))
    return result[0], result[1]
