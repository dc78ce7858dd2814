"""The size of what gradients are sums of: where terms cancel, errors in float32 are relative to it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    BatchNormalization,
    Eltwise,
    LayerNormalization,
    OpDesc,
    Pooling,
    PrimitiveAttr,
    Softmax,
)

from .moments import normalization_backward_magnitudes
from .reference import results

Array = NDArray[Any]
#: Functions whose slopes change their sign where they are no constants: sums of numbers of at most about 1.
_TURNING: Final = ("gelu_erf", "gelu_tanh", "swish", "mish", "hardswish")


def gradient_magnitudes(op: OpDesc, args: dict[int, Array], arg: int) -> Array | float:
    """Return the sums of the magnitudes of what a gradient's elements are sums of; 0 if they are no sums."""
    match op:
        case Eltwise():
            return np.abs(args[Arg.DIFF_DST]) if op.algorithm in _TURNING else 0.0
        case Softmax():
            result, errors = args[Arg.DST], np.abs(args[Arg.DIFF_DST])
            if op.algorithm == "log":
                return np.asarray(errors + np.exp(result) * errors.sum(axis=op.axis, keepdims=True))
            result = np.abs(result)
            return np.asarray(result * (errors + (result * errors).sum(axis=op.axis, keepdims=True)))
        case Pooling():
            magnitudes = {**args, int(Arg.DIFF_DST): np.abs(args[Arg.DIFF_DST])}
            return results(op, PrimitiveAttr(), magnitudes)[Arg(arg)]
        case BatchNormalization() | LayerNormalization():
            wide = {place: np.asarray(values, np.float64) for place, values in args.items()}
            return normalization_backward_magnitudes(op, wide)[Arg(arg)]
        case _:
            return 0.0
