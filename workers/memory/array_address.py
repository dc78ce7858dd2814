"""The address of an array's first element, in a tenth of the time of ``array.ctypes.data``."""

from __future__ import annotations

import ctypes
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


#: Whether short runs may look at the words themselves, as the functions here do.
IS_THERE: Final = _is_there()


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
