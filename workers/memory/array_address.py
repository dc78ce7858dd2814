"""The address of an array's first element, in a tenth of the time of ``array.ctypes.data``, and where kernels find it."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: All words of the process by their number, because an item of an array of words is read in a fifth of the time of
#: ``c_size_t.from_address``. Addresses of user space have 47 bits.
WORDS: Final = (ctypes.c_size_t * (1 << 44)).from_address(0)
#: NumPy's documented structure of an array, which its binary interface fixes, begins with the object's head and the address
#: of the data. A word for the number of dimensions, four addresses (dimensions, strides, base, data type) and the flags follow.
DATA: Final = object.__basicsize__ >> 3
FLAGS: Final = DATA + 6
_RANK, _SIZES, _DTYPE = DATA + 1, DATA + 2, DATA + 5
#: The word with the address of a list's items follows that of their number. A list that keeps its length keeps its items' place.
_ITEMS: Final = DATA + 1
#: NumPy's flags of an array that is C-contiguous and aligned. They are the lower half of their word.
IN_ORDER: Final = 0x1 | 0x100


def _is_there() -> bool:
    """Return whether this interpreter's arrays have address and flags at these places."""
    whole = np.zeros((4, 5), np.float32)
    unaligned = np.zeros(9, np.uint8)[1:].view(np.float32)
    for array in (whole, whole[1:, 2:], whole.T[::2], whole.T, unaligned, whole[0]):
        at, flags = id(array) >> 3, array.flags
        want = flags.c_contiguous * 0x1 | flags.aligned * 0x100
        if WORDS[at + DATA] != array.ctypes.data or WORDS[at + FLAGS] & IN_ORDER != want:
            return False
    return True


def _are_there() -> bool:
    """Return whether this interpreter's arrays also have what compiled code reads, and lists their items, at these places."""
    array = np.zeros((4, 5), np.float32)
    at, items = id(array) >> 3, [array]
    if not IS_THERE or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    # In this order: a word that is no address must not be read as one.
    found = WORDS[at + DATA - 1], WORDS[at + _RANK] & 0xFFFFFFFF, WORDS[at + _DTYPE]
    if found != (id(np.ndarray), 2, id(array.dtype)):
        return False
    sizes = WORDS[at + _SIZES] >> 3
    return (WORDS[sizes], WORDS[sizes + 1]) == array.shape and WORDS[address_of_items(items) >> 3] == id(array)


#: Whether short runs may look at the words themselves, as the functions here do.
IS_THERE: Final = _is_there()


def address_of_items(items: list[Any]) -> int:
    """Return the address of the addresses of a list's items."""
    return WORDS[(id(items) >> 3) + _ITEMS]


#: Whether compiled code may read arrays and lists (`kernels/native/array_call.py`).
ARE_THERE: Final = _are_there()


def address_of(array: NDArray[Any]) -> int:
    """Return the address of an array's first element; the caller keeps the array."""
    return WORDS[(id(array) >> 3) + DATA] if IS_THERE else array.ctypes.data


def address_in_order(array: NDArray[Any]) -> int:
    """Return the address of an array that is C-contiguous and aligned, 0 of any other one."""
    if IS_THERE:
        at = id(array) >> 3
        return WORDS[at + DATA] if WORDS[at + FLAGS] & IN_ORDER == IN_ORDER else 0
    flags = array.flags
    return array.ctypes.data if flags.c_contiguous and flags.aligned else 0
