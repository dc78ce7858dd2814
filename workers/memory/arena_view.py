"""The arena in one process: shared memory mapped once, addressed by offset.

Not the `mmap` module: it keeps a descriptor as long as the mapping, every fork inherits that, and one descriptor keeps all
of the memory. Here only the mapping remains when the caller has closed its descriptor.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from functools import lru_cache
from typing import Any

#: The result of a failed mmap.
_FAILED = ctypes.c_void_p(-1).value


class ArenaView:
    """Maps the whole arena. The mapping lasts as long as this object or any buffer taken from it."""

    __slots__ = ("__weakref__", "address", "nbytes")

    def __init__(self, fd: int) -> None:
        """Map the memory of ``fd``, which may be closed afterwards. Raises OSError if address space is short."""
        self.nbytes = os.fstat(fd).st_size
        access = mmap.PROT_READ | mmap.PROT_WRITE
        address = _libc().mmap(None, self.nbytes, access, mmap.MAP_SHARED, fd, 0)
        if address is None or address == _FAILED:
            code = ctypes.get_errno()
            raise OSError(code, f"an arena of {self.nbytes} bytes cannot be mapped: {os.strerror(code)}")
        #: Address of offset 0 in this process.
        self.address: int = address
        weakref.finalize(self, _libc().munmap, address, self.nbytes).atexit = False

    def at(self, offset: int, nbytes: int) -> int:
        """Return the address of ``nbytes`` bytes at an offset. Raises ValueError if they are not inside."""
        if offset < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"{nbytes} bytes at {offset} are outside of an arena of {self.nbytes} bytes")
        return self.address + offset

    def buffer(self, offset: int, nbytes: int) -> Any:
        """Return a writable buffer object (it can be weakly referenced) on ``nbytes`` bytes at an offset.

        Raises ValueError if they are not inside.
        """
        buffer = (ctypes.c_char * nbytes).from_address(self.at(offset, nbytes))
        buffer.arena = self  # type: ignore[attr-defined]  # the mapping outlives it
        return buffer

    def copy(self, source: int, destination: int, nbytes: int) -> None:
        """Copy bytes from one offset to another that they do not overlap. Raises ValueError if they are not inside."""
        ctypes.memmove(self.at(destination, nbytes), self.at(source, nbytes), nbytes)

    def keep_from_forks(self) -> None:
        """Keep the arena out of processes that are forked from this one: they can neither use it nor keep its memory."""
        if _libc().madvise(self.address, self.nbytes, mmap.MADV_DONTFORK):
            code = ctypes.get_errno()
            raise OSError(code, f"an arena cannot be kept from forks: {os.strerror(code)}")


@lru_cache(maxsize=1)
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    size = ctypes.c_size_t
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    libc.munmap.argtypes = (ctypes.c_void_p, size)
    libc.madvise.argtypes = (ctypes.c_void_p, size, ctypes.c_int)
    return libc
