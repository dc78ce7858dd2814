"""A call of a native kernel whose arguments are converted once: to convert three addresses takes as long as the call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Final

#: A kernel's entry point, as `KERNEL_TYPE`, that takes references without looking at their types.
_ENTRY: Final = ctypes.CFUNCTYPE(ctypes.c_int)
#: The same, called with the interpreter's lock.
_LOCKED_ENTRY: Final = ctypes.PYFUNCTYPE(ctypes.c_int)
#: Bytes from where a kernel writes its status to where it writes the address of what it raises.
ERROR: Final = 32


def bind_call(function: int, status: int, packed: int, locked: bool = False) -> Callable[[], int]:
    """Return what calls the kernel at an address and returns 0, or an error status.

    ``status`` is the address of 64 bytes that the kernel writes, ``packed`` that of its packed arguments. The caller keeps the
    kernel and both memories. A ``locked`` call keeps the interpreter's lock, unless the kernel itself lets go of it.
    """
    addresses = (status, status + ERROR, packed)
    entry = _LOCKED_ENTRY if locked else _ENTRY
    return partial(entry(function), *(ctypes.byref(ctypes.c_char.from_address(address)) for address in addresses))
