"""Updates of a tensor at indices, one after another."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Scatter

Array = NDArray[Any]

_FUNCTIONS: Final[dict[str, Any]] = {
    "none": lambda old, new: new, "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def scatter(op: Scatter, src: Array, indices: Array, updates: Array) -> Array:
    """Return src with updates; those out of range are left out."""
    found, chosen = np.array(src), np.asarray(indices).astype(np.int64)
    outer = chosen.shape if op.algorithm == "elements" else chosen.shape[:-1]
    for place in np.ndindex(outer):
        if op.algorithm == "elements":
            at = tuple(int(chosen[place]) if dim == op.axis else index for dim, index in enumerate(place))
        else:
            at = tuple(int(index) for index in chosen[place])
        if all(-size <= index < size for index, size in zip(at, found.shape, strict=False)):
            found[at] = _FUNCTIONS[op.reduction](found[at], updates[place])
    return found
