"""Elements added around a tensor, or cut from it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Pad

Array = NDArray[Any]


def pad(op: Pad, src: Array) -> Array:
    """Return a padded tensor by NumPy's function."""
    pairs = list(zip(op.padding_l, op.padding_r, strict=True))
    ends = [size + min(right, 0) for size, (_, right) in zip(src.shape, pairs, strict=True)]
    kept = src[tuple(slice(max(-left, 0), end) for (left, _), end in zip(pairs, ends, strict=True))]
    widths = [(max(left, 0), max(right, 0)) for left, right in pairs]
    if op.dst.elements == 0:
        return np.zeros(op.dst.dims)
    if op.mode == "constant":
        return np.pad(kept, widths, constant_values=op.value)
    return np.asarray(np.pad(kept, widths, op.mode))  # type: ignore[call-overload]
