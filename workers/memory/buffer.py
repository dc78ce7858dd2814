"""Aligned private memory of one process: workspaces, scratchpads and tables that kernels address directly."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from typing import Final

#: Bytes that kernels may read past the end of a buffer.
SLACK: Final = 64
#: Memory of so many bytes, a huge page's, asks for huge pages: weights that are read once a run would otherwise be
#: read at half the speed, because each small page is looked up again.
_HUGE: Final = 2 << 20
#: Bytes of a cache line.
_LINE: Final = 64


class Buffer:
    """Zeroed, page-aligned memory that lives as long as this object and its views; `address` is its first byte.

    ``huge`` False asks for no huge pages: better for memory that is used once.
    """

    __slots__ = ("_hold", "_map", "address", "nbytes")

    def __init__(self, nbytes: int, content: bytes = b"", *, huge: bool = True) -> None:
        self.nbytes = nbytes
        self._map = mmap.mmap(-1, max(nbytes, len(content)) + SLACK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if huge and nbytes >= _HUGE:
            with suppress(OSError):  # a kernel without huge pages
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self._map[: len(content)] = content
        self._hold = ctypes.c_char.from_buffer(self._map)
        self.address: int = ctypes.addressof(self._hold)

    @property
    def view(self) -> memoryview:
        """The bytes, writable; the view keeps the memory."""
        return memoryview(self._map)[: self.nbytes]


class Table:
    """A copy of constant bytes that begins on a cache line, at `address`. Cheaper to make than a `Buffer`."""

    __slots__ = ("_hold", "address")

    def __init__(self, content: bytes) -> None:
        self._hold = (ctypes.c_char * (len(content) + _LINE + SLACK))()
        self.address: int = -(-ctypes.addressof(self._hold) // _LINE) * _LINE
        ctypes.memmove(self.address, content, len(content))
