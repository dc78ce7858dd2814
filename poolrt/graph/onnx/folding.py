"""Arrays that are computed from known arrays while a model is imported: the size of each is checked before it is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..shapes import infer_reshape, normalize_axis
from .element_types import FLOATS, SUB_BYTES

Array: TypeAlias = NDArray[Any]
#: NumPy's limit for the rank of an array.
MOST_DIMS: Final = 64
#: Multiplications of all matrix products of a model: some 0.3 s of one processor.
_MOST_PRODUCTS: Final = 1 << 33


class Folding:
    """Computes known arrays that are no views, and refuses those that exceed a limit of bytes, alone or together.

    Guarantees: no method allocates more than the limit. A number that is broadcast to a shape counts as that many
    elements, although it takes the memory of one: the graph writes all of them when it is loaded. Every method raises
    ValueError for what it cannot compute.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self._products = 0

    def fill(self, number: Array, dims: Sequence[int]) -> Array:
        """Return one number broadcast to a shape: a view."""
        self._book(dims, number.dtype)
        return np.broadcast_to(number.reshape(()), tuple(dims))

    def apply(self, function: np.ufunc, array: Array) -> Array:
        """Return a function of one array, in its data type."""
        result = self._allocate(array.shape, array.dtype)
        with _quiet():
            function(array, out=result, casting="unsafe")
        return result

    def combine(self, function: np.ufunc, left: Array, right: Array, dtype: np.dtype[Any] | None = None) -> Array:
        """Return a function of two arrays, broadcast, in a data type, by default that of ``left``."""
        result = self._allocate(_broadcast(left, right), left.dtype if dtype is None else dtype)
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
        """Return an array in another data type; floats become integers as kernels convert them, saturated and NaN the least.

        Integers of four and of two bits are the low bits of those.
        """
        if array.dtype == dtype:
            return array
        if dtype.name in SUB_BYTES and array.dtype.name in FLOATS:
            # Versions of ml_dtypes differ in what they make of floats that these integers do not have.
            array = self.cast(array, np.dtype(np.int64))
        result = self._allocate(array.shape, dtype)
        with _quiet():
            np.copyto(result, array, casting="unsafe")
            if array.size and array.dtype.kind == "f" and dtype.kind in "iu":
                self._saturate(result, array)
        return result

    def _saturate(self, result: Array, array: Array) -> None:
        """Write the limits of integers where floats are outside: NumPy gives what the processor's instruction does."""
        limits = np.iinfo(result.dtype)
        low, beyond = float(limits.min), float(limits.max + 1)
        # The least number is NaN if any is; reductions take no memory.
        if float(array.min()) >= low and float(array.max()) < beyond:
            return
        for _ in range(2):
            self._book(array.shape, np.dtype(np.bool_))
        result[~(array >= low)] = limits.min
        result[array >= beyond] = limits.max

    def select(self, condition: Array, chosen: Array, other: Array) -> Array:
        """Return ``chosen`` where a condition is true, else ``other``, broadcast."""
        try:
            dims = np.broadcast_shapes(condition.shape, chosen.shape, other.shape)
        except ValueError as error:
            shapes = f"{condition.shape}, {chosen.shape} and {other.shape}"
            raise ValueError(f"shapes {shapes} do not broadcast") from error
        self._book(dims, chosen.dtype)
        return np.where(condition, chosen, other)

    def broadcast(self, array: Array, dims: Sequence[int]) -> Array:
        """Return a view that repeats dimensions of 1 up to a shape."""
        self._book(dims, array.dtype)
        try:
            return np.broadcast_to(array, tuple(dims))
        except ValueError as error:
            raise ValueError(f"shape: {array.shape} does not expand to {tuple(dims)}") from error

    def reduce(self, function: Callable[..., Any], array: Array, axes: tuple[int, ...], keep: bool) -> Array:
        """Return an array reduced along axes, in its own data type."""
        dims = tuple(1 if axis in axes else size for axis, size in enumerate(array.shape))
        self._book(dims, array.dtype)
        with _quiet():
            reduced = function(array, axis=axes, keepdims=keep)
        return np.asarray(reduced).astype(array.dtype)

    def book(self, dims: Sequence[int], dtype: np.dtype[Any]) -> None:
        """Count the bytes of an array that the caller makes. Raises ValueError if it exceeds the limit."""
        self._book(dims, dtype)

    def take(self, array: Array, indices: Array, axis: int) -> Array:
        """Return the elements at indices along an axis."""
        axis = normalize_axis(axis, array.ndim)
        if indices.dtype.kind not in "iu":
            raise ValueError(f"indices are of type {indices.dtype}, expect integers")
        self._book((*array.shape[:axis], *indices.shape, *array.shape[axis + 1 :]), array.dtype)
        return np.take(array, self.cast(indices, np.dtype(np.int64)), axis=axis)

    def scatter(self, array: Array, indices: Array, updates: Array) -> Array:
        """Return an array with updates at the places that rows of indices name; the last one of equal places stays."""
        depth = indices.shape[-1] if indices.ndim else 0
        if indices.dtype.kind not in "iu" or not 1 <= depth <= array.ndim:
            raise ValueError(f"indices of type {indices.dtype} and shape {indices.shape} for shape {array.shape}")
        wanted = (*indices.shape[:-1], *array.shape[depth:])
        if updates.shape != wanted or updates.dtype != array.dtype:
            raise ValueError(f"updates: expect {array.dtype}{wanted}, got {updates.dtype}{updates.shape}")
        self._book(array.shape, array.dtype)
        result = array.copy()
        result[tuple(np.moveaxis(indices, -1, 0))] = updates
        return result

    def accumulate(self, array: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
        """Return the sums of the elements up to each along an axis, without itself if exclusive; reversed, from the end."""
        self._book(array.shape, array.dtype)
        turned = np.moveaxis(array, axis, 0)
        turned = turned[::-1] if reverse else turned
        result = np.zeros(turned.shape, array.dtype)
        with _quiet():
            np.cumsum(turned[:-1] if exclusive else turned, 0, array.dtype, result[1:] if exclusive else result)
        return np.moveaxis(result[::-1] if reverse else result, 0, axis)

    def multiply(self, left: Array, right: Array) -> Array | None:
        """Return the product of arrays of matrices of floats; None if the graph must compute it.

        That is so for other types, for shapes that do not fit, and beyond the limits of bytes and of multiplications.
        """
        if left.dtype != right.dtype or left.dtype not in (np.float32, np.float64) or left.shape[-1] != right.shape[-2]:
            return None
        try:
            batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        except ValueError:
            return None
        dims = (*batch, left.shape[-2], right.shape[-1])
        count = math.prod(dims) * left.shape[-1]
        if self._products + count > _MOST_PRODUCTS or not self._fits(dims, left.dtype):
            return None
        self._products += count
        with _quiet():
            return np.matmul(left, right, out=self._allocate(dims, left.dtype))

    def normalize(self, rows: Array, is_centered: bool, epsilon: float, *scales: Array | None) -> Array | None:
        """Return rows of floats over their deviation, from the mean or from 0, scaled and shifted; None as in `multiply`."""
        # The data type of the result, and two arrays of float64.
        if rows.dtype not in (np.float32, np.float64) or not rows.size or not self._fits((5, *rows.shape), rows.dtype):
            return None
        wide = rows.astype(np.float64)
        scale, shift = scales
        with _quiet():
            if is_centered:
                wide -= wide.mean(-1, keepdims=True)
            wide /= np.sqrt(np.square(wide).mean(-1, keepdims=True) + epsilon)
            if scale is not None:
                wide *= scale
            if shift is not None:
                wide += shift
        return self.cast(wide, rows.dtype)

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

    def _fits(self, dims: Sequence[int], dtype: np.dtype[Any]) -> bool:
        """Return whether an array is within the limit, with those before it."""
        return self.taken + math.prod(dims) * dtype.itemsize <= self.limit

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
