"""Arrays that are computed from known arrays while a model is imported: the size of each is checked before it is made."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..shapes import infer_reshape, normalize_axis

Array: TypeAlias = NDArray[Any]
#: NumPy's limit for the rank of an array.
MOST_DIMS: Final = 64


class Folding:
    """Computes known arrays that are no views, and refuses those that exceed a limit of bytes, alone or together.

    Guarantees: no method allocates more than the limit. A number that is broadcast to a shape counts as that many
    elements, although it takes the memory of one: the graph writes all of them when it is loaded. Every method raises
    ValueError for what it cannot compute.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    def fill(self, number: Array, dims: Sequence[int]) -> Array:
        """Return one number broadcast to a shape: a view."""
        self._book(dims, number.dtype)
        return np.broadcast_to(number.reshape(()), tuple(dims))

    def combine(self, function: np.ufunc, left: Array, right: Array) -> Array:
        """Return a function of two arrays, broadcast, in the data type of ``left``."""
        result = self._allocate(_broadcast(left, right), left.dtype)
        with _quiet():
            function(left, right, out=result, casting="unsafe")
        return result

    def divide(self, left: Array, right: Array) -> Array:
        """Return the quotients, those of integers rounded towards zero as ONNX and C do."""
        if left.dtype.kind not in "iu" or right.dtype.kind not in "iu":
            return self.combine(np.true_divide, left, right)
        if not right.all():
            raise ValueError("an integer is divided by zero")
        quotient = self.combine(np.floor_divide, left, right)
        rest = self.combine(np.remainder, left, right)
        with _quiet():
            np.add(quotient, (rest != 0) & ((left < 0) != (right < 0)), out=quotient, casting="unsafe")
        return quotient

    def negate(self, array: Array) -> Array:
        """Return the negated array."""
        with _quiet():
            return np.negative(array, out=self._allocate(array.shape, array.dtype))

    def cast(self, array: Array, dtype: np.dtype[Any]) -> Array:
        """Return an array in another data type."""
        if array.dtype == dtype:
            return array
        result = self._allocate(array.shape, dtype)
        with _quiet():
            np.copyto(result, array, casting="unsafe")
        return result

    def take(self, array: Array, indices: Array, axis: int) -> Array:
        """Return the elements at indices along an axis."""
        axis = normalize_axis(axis, array.ndim)
        if indices.dtype.kind not in "iu":
            raise ValueError(f"indices are of type {indices.dtype}, expect integers")
        self._book((*array.shape[:axis], *indices.shape, *array.shape[axis + 1 :]), array.dtype)
        return np.take(array, self.cast(indices, np.dtype(np.int64)), axis=axis)

    def join(self, arrays: Sequence[Array], axis: int) -> Array:
        """Return arrays of one rank and type joined along an axis."""
        if len({(array.ndim, array.dtype) for array in arrays}) != 1:
            raise ValueError("expect arrays of one rank and one data type")
        axis = normalize_axis(axis, arrays[0].ndim)
        joined = sum(array.shape[axis] for array in arrays)
        self._book((*arrays[0].shape[:axis], joined, *arrays[0].shape[axis + 1 :]), arrays[0].dtype)
        return np.concatenate(arrays, axis)

    def reshape(self, array: Array, dims: Sequence[int]) -> Array:
        """Return the same elements in another shape, without a copy if they are side by side."""
        wanted = infer_reshape(array.shape, dims)
        if not array.flags.c_contiguous:
            self._book(wanted, array.dtype)
        return array.reshape(wanted)

    def _allocate(self, dims: Sequence[int], dtype: np.dtype[Any]) -> Array:
        self._book(dims, dtype)
        return np.empty(tuple(dims), dtype)

    def _book(self, dims: Sequence[int], dtype: np.dtype[Any]) -> None:
        """Count the bytes of an array. Raises ValueError if it has no valid shape or exceeds the limit."""
        if len(dims) > MOST_DIMS:
            raise ValueError(f"its result has {len(dims)} dimensions; expect at most {MOST_DIMS}")
        if min(dims, default=0) < 0:
            raise ValueError(f"its result has a negative size: {tuple(dims)}")
        # One that has no elements still takes the memory of an object.
        nbytes = max(math.prod(dims) * dtype.itemsize, 1)
        if self.taken + nbytes > self.limit:
            raise ValueError(
                f"its constant result of shape {tuple(dims)} takes {nbytes} bytes, and those before it {self.taken}; "
                f"the limit of all is {self.limit}: allow more with constant_bytes"
            )
        self.taken += nbytes


def _broadcast(left: Array, right: Array) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(left.shape, right.shape)
    except ValueError as error:
        raise ValueError(f"shapes {left.shape} and {right.shape} do not broadcast") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Compute infinities and NaN as IEEE 754 does, without a warning."""
    with np.errstate(all="ignore"):
        yield
