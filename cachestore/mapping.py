"""Map a file, so that reading it is reading memory.

Only on file systems where a mapping is known to show the writes of all processes of the node at once: a network file
system does not, and could end this process with a bus error when another host removes the file.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import weakref
from functools import lru_cache
from typing import Any, Final

#: Type numbers of local file systems, as statfs(2) gives them (linux/magic.h).
_LOCAL: Final = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # XFS
        0x9123683E,  # Btrfs
        0x01021994,  # tmpfs
        0x794C7630,  # overlayfs
        0xF2F52010,  # F2FS
        0x2FC12FC1,  # ZFS
        0xCA451A4E,  # bcachefs
    }
)
#: Size, in bytes, of a buffer that holds any `struct statfs`; its first word is the type.
_STATFS: Final = 256
#: The result of a failed mmap.
_FAILED: Final = ctypes.c_void_p(-1).value


class MappedBytes:
    """Bytes of a file, read-only, mapped as long as this object or a view of it lives. No descriptor stays open."""

    __slots__ = ("__weakref__", "address", "nbytes")

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        weakref.finalize(self, _libc().munmap, address, nbytes).atexit = False

    @property
    def view(self) -> memoryview:
        """The bytes, which keep the mapping."""
        content = (ctypes.c_ubyte * self.nbytes).from_address(self.address)
        content.mapped = self  # type: ignore[attr-defined]
        return memoryview(content).cast("B").toreadonly()


def map_bytes(descriptor: int, size: int) -> MappedBytes | None:
    """Return a read-only shared mapping of a file's first bytes, which the file has; None where that is unsafe or impossible."""
    if not is_local(descriptor):
        return None
    address = _libc().mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    return None if address in (None, _FAILED) else MappedBytes(address, size)


def map_record(descriptor: int, size: int) -> mmap.mmap | None:
    """Return a read-only shared mapping of a file's first bytes; None where that is unsafe or impossible."""
    if not is_local(descriptor):
        return None
    try:
        return mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ)
    except (OSError, ValueError):
        # No memory for it, or the file is shorter than it should be.
        return None


def reserve_bytes(descriptor: int, size: int) -> None:
    """Reserve a file's first bytes on the disk, if the file system can: writing them then takes a quarter less time on ext4.

    Not `os.posix_fallocate`, which writes to each block where the file system cannot. Errors are those of later writes.
    """
    _libc().fallocate(descriptor, 0, 0, size)


def is_local(descriptor: int) -> bool:
    """Return whether an open file is on a file system of this host, among those in `_LOCAL`."""
    status = ctypes.create_string_buffer(_STATFS)
    if _libc().fstatfs(descriptor, status):
        return False
    return int.from_bytes(status.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) in _LOCAL


@lru_cache(maxsize=1)
def _libc() -> Any:
    libc = ctypes.CDLL(None)
    size = ctypes.c_size_t
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    libc.munmap.argtypes = (ctypes.c_void_p, size)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
    return libc
