"""The arena as one process sees it: shared memory mapped once, addressed by offset."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any


class ArenaView:
    """Maps the whole arena. The mapping lasts as long as this object or any buffer taken from it."""

    __slots__ = ("_hold", "_map", "address", "nbytes")

    def __init__(self, fd: int) -> None:
        """Map the memory behind ``fd``, which may be closed afterwards. Raises OSError where address space is short."""
        self.nbytes = os.fstat(fd).st_size
        self._map = mmap.mmap(fd, self.nbytes, flags=mmap.MAP_SHARED)
        self._hold = ctypes.c_char.from_buffer(self._map)
        #: Address of offset 0 in this process.
        self.address: int = ctypes.addressof(self._hold)

    def at(self, offset: int, nbytes: int) -> int:
        """Return the address of ``nbytes`` bytes at an offset. Raises ValueError where they are not inside."""
        if offset < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"{nbytes} bytes at {offset} are outside of an arena of {self.nbytes} bytes")
        return self.address + offset

    def buffer(self, offset: int, nbytes: int) -> Any:
        """Return a writable buffer object (it can be weakly referenced) on ``nbytes`` bytes at an offset."""
        return (ctypes.c_char * nbytes).from_buffer(self._map, offset)
