"""Map a small file, so that reading it is reading memory.

Only on file systems where a mapping is known to show the writes of all processes of the node at once: a network file
system does not, and could end this process with a bus error when another host removes the file.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Final

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


def map_record(descriptor: int, size: int) -> mmap.mmap | None:
    """Return a read-only shared mapping of a file's first bytes; None where that is unsafe or impossible."""
    status = ctypes.create_string_buffer(_STATFS)
    if ctypes.CDLL(None).fstatfs(descriptor, status):
        return None
    kind = int.from_bytes(status.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)
    if kind not in _LOCAL:
        return None
    try:
        return mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ)
    except (OSError, ValueError):
        # No memory for it, or the file is shorter than it should be.
        return None
