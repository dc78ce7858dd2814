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
#: Flags of mmap(2) and mremap(2), which the `mmap` module has not.
_NORESERVE = 0x4000
_MAYMOVE = 1
_FIXED = 2
#: The advice of madvise(2) that maps pages for writing, since Linux 5.14.
_POPULATE_WRITE = 23
#: The upper bytes of entries in /proc/self/pagemap that are not of a private page: such a page is there, or swapped out, and
#: of no file.
_SHARED = bytes(byte for byte in range(256) if not byte & 0xC0 or byte & 0x20)


class ArenaView:
    """Maps the whole arena. The mapping lasts as long as this object or any buffer taken from it.

    A ``private`` one shows what is in the arena until this process writes there: nobody else sees that, and a page that was
    written shows nothing else until `forget_written`.
    """

    __slots__ = ("__weakref__", "address", "nbytes")

    def __init__(self, fd: int, *, private: bool = False) -> None:
        """Map the memory of ``fd``, which may be closed afterwards. Raises OSError if address space is short."""
        self.nbytes = os.fstat(fd).st_size
        access = mmap.PROT_READ | mmap.PROT_WRITE
        kind = mmap.MAP_PRIVATE | _NORESERVE if private else mmap.MAP_SHARED
        address = _libc().mmap(None, self.nbytes, access, kind, fd, 0)
        if address is None or address == _FAILED:
            code = ctypes.get_errno()
            raise OSError(code, f"an arena of {self.nbytes} bytes cannot be mapped: {os.strerror(code)}")
        #: Address of offset 0 in this process.
        self.address: int = address
        weakref.finalize(self, _libc().munmap, address, self.nbytes).atexit = False

    def has_written(self, offset: int, nbytes: int) -> bool:
        """Return whether this process may have written to pages of some bytes of a private mapping."""
        first, last = (self.address + offset) // mmap.PAGESIZE, (self.address + offset + nbytes - 1) // mmap.PAGESIZE
        count = last - first + 1
        try:
            fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            try:
                entries = os.pread(fd, 8 * count, 8 * first)
            finally:
                os.close(fd)
        except OSError:
            return True  # it cannot be known here
        return len(entries) < 8 * count or bool(entries[7::8].translate(None, _SHARED))

    def forget_written(self, offset: int, nbytes: int) -> None:
        """Let the pages of some bytes of a private mapping show again what is in the arena."""
        self._advise(offset, nbytes, mmap.MADV_DONTNEED)

    def detach(self, offset: int, nbytes: int) -> None:
        """Make the pages of some bytes private to this process, at the same addresses. Raises OSError if memory is short."""
        libc = _libc()
        begin, end = _page(offset), min(self.nbytes, _page(offset + nbytes + mmap.PAGESIZE - 1))
        size = end - begin
        access, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        copy = libc.mmap(None, size, access, kind, -1, 0)
        if copy is None or copy == _FAILED:
            code = ctypes.get_errno()
            raise OSError(code, f"{size} bytes cannot be copied from an arena: {os.strerror(code)}")
        ctypes.memmove(copy, self.address + begin, size)
        # At once, so that a thread that reads there sees no other bytes.
        if libc.mremap(copy, size, size, _MAYMOVE | _FIXED, self.address + begin) != self.address + begin:
            code = ctypes.get_errno()
            libc.munmap(copy, size)
            raise OSError(code, f"{size} bytes of an arena cannot be replaced: {os.strerror(code)}")

    def populate(self, offset: int, nbytes: int) -> bool:
        """Map pages for writing in one call, instead of one fault for each; return False if the kernel does not."""
        return not _libc().madvise(self.address + offset, nbytes, _POPULATE_WRITE)

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

    def keep_from_forks(self, offset: int = 0, nbytes: int | None = None) -> None:
        """Keep the arena, or some bytes, out of processes that are forked from this one.

        They can neither use it nor keep its memory.
        """
        self._advise(offset, self.nbytes if nbytes is None else nbytes, mmap.MADV_DONTFORK)

    def share_with_forks(self, offset: int, nbytes: int) -> None:
        """Let processes that are forked from this one have some bytes."""
        self._advise(offset, nbytes, mmap.MADV_DOFORK)

    def _advise(self, offset: int, nbytes: int, advice: int) -> None:
        begin, end = _page(offset), _page(offset + nbytes + mmap.PAGESIZE - 1)
        if _libc().madvise(self.address + begin, end - begin, advice):
            code = ctypes.get_errno()
            raise OSError(code, f"pages of an arena cannot be advised: {os.strerror(code)}")


def _page(offset: int) -> int:
    return offset // mmap.PAGESIZE * mmap.PAGESIZE


@lru_cache(maxsize=1)
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    size = ctypes.c_size_t
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    libc.mremap.restype = ctypes.c_void_p
    libc.mremap.argtypes = (ctypes.c_void_p, size, size, ctypes.c_int, ctypes.c_void_p)
    libc.munmap.argtypes = (ctypes.c_void_p, size)
    libc.madvise.argtypes = (ctypes.c_void_p, size, ctypes.c_int)
    return libc
