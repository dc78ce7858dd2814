"""Buffers that travel beside a pickle (pickle protocol 5): NumPy arrays, and whatever offers its memory so.

An array is pickled as its shape and a buffer, whatever its order in memory is, so it is copied once, to where it travels. The
reading side makes an array of that memory without a copy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, Final, Literal

from ..ipc.outlined_payload import LONG

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Kinds of data types that their text describes in full.
_KINDS: Final = "biufcmMSU"


class OutlinedBuffers:
    """The long buffers of one pickle, in its order: the bytes of an array, an array that is not contiguous, a `PickleBuffer`."""

    __slots__ = ("_arrays", "found")

    def __init__(self) -> None:
        self.found: list[Any] = []
        #: Buffers of arrays, by the identity of the empty buffer that stands for each in the pickle.
        self._arrays: dict[int, Any] = {}

    def take(self, buffer: PickleBuffer) -> bool:
        """Keep a long buffer; return True for one that stays in the pickle. This is a pickler's ``buffer_callback``."""
        if self._arrays and (array := self._arrays.pop(id(buffer), None)) is not None:
            self.found.append(array)
            return False
        if buffer.raw().nbytes < LONG:
            return True
        self.found.append(buffer)
        return False

    def clear(self) -> None:
        """Forget all: the pickle was not finished."""
        self.found.clear()
        self._arrays.clear()

    def reduce(self, array: NDArray[Any], *, plain: bool) -> Any:
        """Return how an array is pickled; NotImplemented to leave it to NumPy, or, if ``plain``, to another pickler."""
        dtype = array.dtype
        if dtype.hasobject:
            return NotImplemented
        kind: Any = dtype
        if dtype.metadata is None and describes(dtype):
            kind = dtype.str
        elif plain:
            return NotImplemented
        nbytes = array.nbytes
        flags = array.flags
        order: Literal["C", "F"] = "F" if flags.f_contiguous and not flags.c_contiguous else "C"
        buffer: Any
        if nbytes < LONG:
            buffer = array.tobytes(order)
        elif flags.forc:
            numpy: Any = sys.modules["numpy"]
            flat: Any = (array.T if order == "F" else array).reshape(-1)
            buffer = self._stand_in(flat.view(numpy.uint8))
        else:
            buffer = self._stand_in(array)
        return rebuild_array, (buffer, kind, array.shape, order)

    def _stand_in(self, found: Any) -> PickleBuffer:
        """Return what is pickled for a buffer of an array: a writable one, so that the reader decides whether it may write."""
        buffer = PickleBuffer(bytearray())
        self._arrays[id(buffer)] = found
        return buffer


def is_array(value: object) -> bool:
    """Return whether a value is a NumPy array, and of no subclass."""
    kind = type(value)
    return kind.__name__ == "ndarray" and kind is getattr(sys.modules.get("numpy"), "ndarray", None)


def rebuild_array(buffer: Any, dtype: Any, shape: tuple[int, ...], order: Literal["C", "F"]) -> Any:
    """Return the array of a pickle. It is writable if its memory is, and if its bytes are in the pickle."""
    import numpy

    if type(buffer) is bytes:
        buffer = bytearray(buffer)
    return numpy.ndarray(shape, dtype, buffer, order=order)


def size_of(found: Any) -> int:
    """Return the bytes of what `OutlinedBuffers` has found."""
    nbytes: int = found.raw().nbytes if type(found) is PickleBuffer else found.nbytes
    return nbytes


def address_of_buffer(found: Any) -> int:
    """Return the address of a contiguous buffer, 0 of an array that is not contiguous, and without NumPy."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return 0
    found = numpy.frombuffer(found.raw(), numpy.uint8) if type(found) is PickleBuffer else found
    return _address_in_order()(found)


def bytes_of(found: Any) -> memoryview:
    """Return the bytes of a contiguous buffer that `OutlinedBuffers` has found."""
    return found.raw() if type(found) is PickleBuffer else memoryview(found).cast("B")


def write_buffer(found: Any, room: memoryview) -> None:
    """Write what `OutlinedBuffers` has found into memory of its size."""
    if "numpy" not in sys.modules:
        room[:] = found.raw()
        return
    import numpy

    if type(found) is PickleBuffer:
        # Not a slice of a memoryview, which would keep other threads from running.
        numpy.copyto(numpy.frombuffer(room, numpy.uint8), numpy.frombuffer(found.raw(), numpy.uint8))
    else:
        numpy.ndarray(found.shape, found.dtype, room)[...] = found


@lru_cache(1)
def _address_in_order() -> Callable[[Any], int]:
    """Return a function of a module that imports NumPy. An import in a function takes a microsecond each time."""
    from ..memory.array_address import address_in_order

    return address_in_order


@lru_cache(64)
def describes(dtype: Any) -> bool:
    """Return whether a data type's text stands for it, which is not so for records and those of other packages."""
    import numpy

    if dtype.kind not in _KINDS:
        return False
    try:
        return bool(numpy.dtype(dtype.str) == dtype)
    except TypeError:
        return False
