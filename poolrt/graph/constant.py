"""Constants of a graph: arrays that are turned into float32 only while they are written to where they will live.

A scale that is folded into weights is kept apart until then: folding costs no second copy of the weights, and each
element is rounded once, from a product in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_EXACT_INTEGER_LIMIT = 2**24


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A float32 tensor to be: ``array`` (float32 or float64, any strides) times ``scale`` (a factor a row)."""

    array: NDArray[Any]
    scale: NDArray[np.float64] | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape."""
        return self.array.shape

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor as plain float32."""
        return 4 * math.prod(self.array.shape)

    def write_into(self, view: NDArray[Any]) -> None:
        """Write the values as row-major float32 to the start of ``view``.

        ``view`` is any C-contiguous writable array of at least `nbytes` bytes that starts on a 4-byte boundary; bytes
        beyond are left alone. Raises ValueError where it is too small.
        """
        if view.nbytes < self.nbytes:
            raise ValueError(f"a constant of {self.nbytes} bytes does not fit in {view.nbytes}")
        target = view.reshape(-1).view(np.uint8)[: self.nbytes].view(np.float32).reshape(self.array.shape)
        if self.scale is None:
            np.copyto(target, self.array, casting="same_kind")
        else:
            np.multiply(self.array, _along_first(self.scale, self.array.ndim), out=target, casting="same_kind")

    def float32(self) -> NDArray[np.float32]:
        """Return the values as a new row-major float32 array."""
        values = np.empty(self.array.shape, np.float32)
        self.write_into(values)
        return values

    def float64(self) -> NDArray[np.float64]:
        """Return the values as float64, without the final rounding."""
        values = self.array.astype(np.float64)
        return values if self.scale is None else values * _along_first(self.scale, values.ndim)

    def scaled(self, scale: NDArray[np.float64]) -> Constant:
        """Return this constant times ``scale``, one factor for each index of dimension 0."""
        return Constant(self.array, scale if self.scale is None else self.scale * scale)

    def reshaped(self, dims: Sequence[int]) -> Constant:
        """Return the same elements in another shape, without a copy where NumPy needs none."""
        keeps_first = self.scale is None or (dims and self.dims and dims[0] == self.dims[0])
        if keeps_first:
            return Constant(self.array.reshape(tuple(dims)), self.scale)
        return Constant(self.float64().reshape(tuple(dims)))

    def transposed(self, perm: Sequence[int]) -> Constant:
        """Return a view with permuted dimensions."""
        if self.scale is None or perm[0] == 0:
            return Constant(self.array.transpose(tuple(perm)), self.scale)
        return Constant(self.float64().transpose(tuple(perm)))


def as_constant(value: object) -> Constant:
    """Make a constant of what a user gave: a NumPy array, a number or a sequence of numbers.

    float32 arrays are kept as they are, without a copy. float64 and float16 are rounded to float32. Integers and
    booleans are taken where float32 holds them exactly. Raises ValueError for anything else, and for finite float64
    values beyond float32's range.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"expect an array of numbers, got {type(value).__name__} ({error})") from error
    if array.dtype == np.float32:
        return Constant(array)
    if array.dtype.kind in "biu":
        if array.size and max(abs(int(array.min())), abs(int(array.max()))) > _EXACT_INTEGER_LIMIT:
            raise ValueError(f"integers beyond +-2**24 do not fit float32 exactly (dtype {array.dtype})")
        return Constant(array.astype(np.float32))
    if array.dtype.kind != "f":
        raise ValueError(f"expect an array of floating point numbers, got dtype {array.dtype}")
    with np.errstate(over="ignore", under="ignore"):
        rounded = array.astype(np.float32)
    if not np.array_equal(np.isfinite(rounded), np.isfinite(array)):
        raise ValueError(f"values of dtype {array.dtype} exceed the range of float32")
    return Constant(rounded)


def _along_first(scale: NDArray[np.float64], ndim: int) -> NDArray[np.float64]:
    return scale.reshape(-1, *(1,) * (ndim - 1))
