"""Compare results with references by benchdnn's rule."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .data_types import INTEGERS, rounded

Array = NDArray[Any]
#: References smaller than this are compared by absolute error.
_SMALL: Final = 1e-5


def assert_close(
    got: Array, want: Array, dtype: str, threshold: float = 0.0, name: str = "", summand: Array | float = 0.0,
    doubt: float = 0.0,
) -> None:  # fmt: skip
    """Raise AssertionError with the worst element unless ``got`` is ``want`` (float64) as nearly as ``dtype`` can tell.

    The reference is first rounded to the data type. Then relative errors, or absolute ones of references that are
    nearly 0, are at most ``threshold``; NaN and infinities agree. Where the result is a sum, errors are relative to the
    larger one of it and a given ``summand``: what cancels leaves the errors of what was added.

    Where float64 itself is not exact, ``doubt`` is how far off a reference may be, relative to it or absolute below 1: an
    integer half way between two may then be either.
    """
    assert got.shape == want.shape, f"{name}: shape {got.shape}, expected {want.shape}"
    with np.errstate(all="ignore"):
        got, off = got.astype(np.float64), doubt * np.maximum(1.0, np.abs(want))
        either = [rounded(want + side, dtype) for side in (-off, off)] if dtype in INTEGERS else []
        want = rounded(want, dtype)
        size = np.maximum(np.abs(want), np.abs(summand))
        error = np.abs(got - want) / np.where(size > _SMALL, size, 1.0)
        agree = np.logical_or.reduce([got == known for known in (want, *either)]) | (np.isnan(got) & np.isnan(want))
        wrong = ~agree & ~(error <= threshold)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        message = f"{wrong.sum()} of {wrong.size} wrong, first at {at}: {got[at]!r}, not {want[at]!r}"
        raise AssertionError(f"{name}: {message}; worst {np.nanmax(np.where(wrong, error, 0))}")
