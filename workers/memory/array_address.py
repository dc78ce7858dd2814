"""The address of an array's first element, in a fifth of the time of ``array.ctypes.data``."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: NumPy's documented structure of an array begins with the object's head and the address of the data.
_PLACE: Final = object.__basicsize__
_word_at: Final = ctypes.c_size_t.from_address


def _is_there() -> bool:
    """Return whether this interpreter's arrays have the address at that place."""
    whole = np.zeros((4, 5), np.float32)
    return all(_word_at(id(a) + _PLACE).value == a.ctypes.data for a in (whole, whole[1:, 2:], whole.T[::2]))


_IS_THERE: Final = _is_there()


def address_of(array: NDArray[Any]) -> int:
    """Return the address of an array's first element; the caller keeps the array."""
    return _word_at(id(array) + _PLACE).value if _IS_THERE else array.ctypes.data
