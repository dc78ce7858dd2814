"""Room behind arrays: some kernels read up to `SLACK` bytes past the last element, which must be there."""

from __future__ import annotations

import math
import mmap
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .array_address import address_in_order, address_of
from .buffer import SLACK

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Bytes of a cache line, on which arrays made here begin.
_LINE: Final = 64
_PAGE: Final = mmap.PAGESIZE
#: Arrays of so many bytes begin at this place of a page. NumPy's large arrays begin near the beginning of one. If a kernel
#: writes just behind the place in a page that it reads next, processors take one for the other and wait: tanh of 128 x 3072
#: values took 40 us of 130 for that.
_LARGE: Final = 1 << 16
_PLACE: Final = _PAGE // 2 + _LINE


def has_room_behind(end: int) -> bool:
    """Return whether kernels may read `SLACK` bytes behind an array that ends at address ``end``.

    They are there if they are in the page of its last byte.
    """
    return -end % _PAGE >= SLACK


def readable_in_place(array: NDArray[Any]) -> bool:
    """Return whether kernels can read an array where it is."""
    address = address_in_order(array)
    return bool(address) and has_room_behind(address + array.nbytes)


def in_order(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as it is if it is C-contiguous and aligned, else a copy that is and has room behind it."""
    return array if address_in_order(array) else copy_with_room(array)


class ArrayRoom:
    """Memory for one array of ``nbytes`` at `address`, ``start`` bytes after its beginning, and room behind the array.

    `has_room_behind` says so of its end, too: code that knows only the address of an array asks that.
    """

    __slots__ = ("address", "bytes", "nbytes", "start")

    def __init__(self, nbytes: int) -> None:
        span, place = (_PAGE, _PLACE) if nbytes >= _LARGE else (_LINE, 0)
        self.nbytes = span + nbytes + 2 * SLACK
        self.bytes = np.empty(self.nbytes, np.uint8)
        begin = address_of(self.bytes)
        self.start = (place - begin) % span
        if not has_room_behind(begin + self.start + nbytes):
            self.start += SLACK
        self.address = begin + self.start


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a row-major array that begins on a cache line and has room behind it."""
    room = ArrayRoom(math.prod(shape) * dtype.itemsize)
    return np.ndarray(shape, dtype, room.bytes, room.start)


def copy_with_room(array: NDArray[Any]) -> NDArray[Any]:
    """Return a row-major copy that begins on a cache line and has room behind it."""
    copy = new_array(array.shape, array.dtype)
    copy[...] = array
    return copy
