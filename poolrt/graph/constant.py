"""Constants of a graph: arrays that are converted to their data type while they are written into their memory.

A scale that is folded into weights stays separate until then: folding costs no second copy of the weights, and each
element is rounded once, from a product in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass
from poolrt.spelling import describe_type
from poolrt.workers.desc import LIMITS, MemoryDesc, data_type, item_size, type_name

from .bfloat16 import from_bfloat16, to_bfloat16

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Numbers that NumPy converts at a time for a product: they stay in the first-level cache, unlike those of its own 8192.
_BUFFERED: Final = 512
_FLOATS: Final = ("f64", "f32", "f16", "bf16")
#: NumPy's kind of numbers that are no array -> their data type.
_NUMBER_TYPES: Final = {"f": "f32", "i": "s32", "u": "s32", "b": "bool"}


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """The tensor ``array`` (any strides) times ``scale`` (a factor for each row), rounded to ``dtype``.

    ``dtype`` holds the values of ``array`` exactly, or they are floating point values.
    """

    array: NDArray[Any]
    scale: NDArray[np.float64] | None = None
    dtype: str = "f32"

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape."""
        return self.array.shape

    @property
    def desc(self) -> MemoryDesc:
        """The row-major memory descriptor."""
        return MemoryDesc(self.array.shape, self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return item_size(self.dtype) * math.prod(self.array.shape)

    def in_order(self) -> tuple[NDArray[Any], MemoryDesc] | None:
        """Return the array in the order of its elements in memory, and how that describes the tensor.

        None if the stored values are not side by side in memory as `write_into` writes them, but for their order.
        """
        if self.scale is not None or self.dtype == "bf16" or self.array.dtype != storage_type(self.dtype):
            return None
        turned, order = turn_as_stored(self.array)
        if not turned.flags.c_contiguous:
            return None
        return turned, self.desc.with_tag("".join("abcdefghijkl"[axis] for axis in order))

    def write_into(self, view: NDArray[Any]) -> None:
        """Write the values, row-major, to the start of ``view``; bf16 as the uint16 of their bits.

        ``view`` is any C-contiguous writable array of at least `nbytes` bytes that starts on a boundary of the data
        type; the bytes after them keep their values. Raises ValueError if it is too small.
        """
        if view.nbytes < self.nbytes:
            raise ValueError(f"a constant of {self.nbytes} bytes does not fit in {view.nbytes}")
        stored = view.reshape(-1).view(np.uint8)[: self.nbytes].view(storage_type(self.dtype)).reshape(self.array.shape)
        if self.dtype == "bf16":
            stored[...] = to_bfloat16(self.array if self.scale is None else self.float64())
        elif self.scale is None:
            np.copyto(stored, self.array, casting="same_kind")
        else:
            before = np.setbufsize(_BUFFERED)
            try:
                np.multiply(self.array, _along_first(self.scale, self.array.ndim), out=stored, casting="same_kind")
            finally:
                np.setbufsize(before)

    def to_array(self) -> NDArray[Any]:
        """Return a new array with the values that `write_into` writes."""
        values = np.empty(self.array.shape, storage_type(self.dtype))
        self.write_into(values)
        return values

    def float64(self) -> NDArray[np.float64]:
        """Return the values as float64, without the final rounding."""
        values = self.array.astype(np.float64)
        return values if self.scale is None else values * _along_first(self.scale, values.ndim)

    def multiply(self, scale: NDArray[np.float64]) -> Constant:
        """Return this constant times ``scale``, one factor for each index of dimension 0."""
        if (scale == 1.0).all():
            return self
        return Constant(self.array, scale if self.scale is None else self.scale * scale, self.dtype)

    def reshape(self, dims: Sequence[int]) -> Constant:
        """Return the same elements in another shape, without a copy if NumPy needs none."""
        keeps_first = self.scale is None or (dims and self.dims and dims[0] == self.dims[0])
        if keeps_first:
            return Constant(self.array.reshape(tuple(dims)), self.scale, self.dtype)
        return Constant(self.float64().reshape(tuple(dims)), None, self.dtype)

    def transpose(self, perm: Sequence[int]) -> Constant:
        """Return a view with permuted dimensions."""
        if self.scale is None or perm[0] == 0:
            return Constant(self.array.transpose(tuple(perm)), self.scale, self.dtype)
        return Constant(self.float64().transpose(tuple(perm)), None, self.dtype)

    def slice(self, starts: Sequence[int], steps: Sequence[int], sizes: Sequence[int]) -> Constant:
        """Return a view of ``sizes`` elements from ``starts`` in ``steps``."""
        along = [slice(a, a + (n - 1) * s + 1, s) for a, s, n in zip(starts, steps, sizes, strict=True)]
        scale = None if self.scale is None else self.scale[along[0]]
        return Constant(self.array[tuple(along)], scale, self.dtype)

    def expand(self, dims: Sequence[int]) -> Constant:
        """Return a view that repeats dimensions of 1."""
        array = self.array if self.scale is None else self.float64()
        return Constant(np.broadcast_to(array, tuple(dims)), None, self.dtype)


def turn_as_stored(array: NDArray[Any]) -> tuple[NDArray[Any], list[int]]:
    """Return a view whose dimensions are in the order of the strides, the largest first, and that order."""
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    return array.transpose(order), order


def storage_type(dtype: str) -> np.dtype[Any]:
    """Return the NumPy type of the stored elements of a data type: uint16 for bf16."""
    return _STORED[dtype]


def make_constant(value: object, dtype: str | None = "f32") -> Constant:
    """Make a constant of a user's NumPy array, number or sequence of numbers.

    Floating point values are rounded to a floating point type; integers are accepted if the type holds them exactly. An
    array of the type itself is not copied. A data type of None is the array's own, or f32, s32 or bool for numbers that
    are no array. Raises ValueError for anything else, and for finite values beyond the range of the type.
    """
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"expect an array of numbers, got {type(value).__name__} ({error})") from error
    if dtype is None:
        dtype = data_type(array.dtype) if isinstance(value, np.ndarray) else _NUMBER_TYPES.get(array.dtype.kind, "f32")
    if array.dtype.name == "bfloat16":
        array = from_bfloat16(array.view(np.uint16))
    if array.dtype == storage_type(dtype) and dtype != "bf16":
        return Constant(array, None, dtype)
    if array.dtype.kind in "biu":
        return Constant(_exact(array, dtype), None, dtype)
    if array.dtype.kind != "f":
        raise ValueError(f"expect an array of floating point numbers, got {_describe(value, array)}")
    if dtype not in _FLOATS:
        raise ValueError(f"expect an array of integers for {type_name(dtype)}, got dtype {array.dtype}")
    return Constant(_rounded(array, dtype), None, dtype)


def _describe(value: object, array: NDArray[Any]) -> str:
    """Return what a value is that is no array of numbers."""
    if isinstance(value, np.ndarray | list | tuple | np.generic) or array.dtype.kind == "c":
        return f"dtype {array.dtype}"
    return f"{describe_type(value)} (dtype {array.dtype})"


def _exact(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return integers in a type that holds each of them exactly."""
    if dtype == "bool" and array.dtype.kind != "b":
        raise ValueError(f"expect an array of booleans, got dtype {array.dtype}")
    low, high = _EXACT[dtype]
    if array.size and not (low <= int(array.min()) and int(array.max()) <= high):
        name = type_name(dtype)
        raise ValueError(f"integers beyond {low}..{high} do not fit {name} exactly (dtype {array.dtype})")
    return array.astype(np.float32 if dtype == "bf16" else storage_type(dtype))


def _rounded(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    with np.errstate(over="ignore", under="ignore"):
        if dtype == "bf16":
            rounded = from_bfloat16(to_bfloat16(array))
        else:
            rounded = array.astype(storage_type(dtype))
    if not np.array_equal(np.isfinite(rounded), np.isfinite(array)):
        raise ValueError(f"values of dtype {array.dtype} exceed the range of {type_name(dtype)}")
    return rounded


def _along_first(scale: NDArray[np.float64], ndim: int) -> NDArray[np.float64]:
    return scale.reshape(-1, *(1,) * (ndim - 1))


_STORED: Final[dict[str, np.dtype[Any]]] = {
    name: np.dtype(kind) for name, kind in {
        "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16, "s64": np.int64, "s32": np.int32,
        "s8": np.int8, "u8": np.uint8, "bool": np.bool_, "u64": np.uint64, "u32": np.uint32, "s16": np.int16,
        "u16": np.uint16,
    }.items()
}  # fmt: skip
#: Integers that a type holds exactly, from the least to the greatest.
_EXACT: Final = {
    "f64": (-(2**53), 2**53), "f32": (-(2**24), 2**24), "f16": (-(2**11), 2**11), "bf16": (-(2**8), 2**8),
    **LIMITS, "bool": (0, 1),
}  # fmt: skip
