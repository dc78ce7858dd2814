"""The file of one entry on this node: its path, its bytes, and the time of its last use."""

from __future__ import annotations

import os
import time


def generation_name(generation: int) -> str:
    """Return the name of a generation's folder; later generations sort after earlier ones."""
    return f"{generation:016x}"


def read_entry_file(path: str, use: bool = True) -> bytes | None:
    """Return the bytes of a file, None if it is not there; `use` makes it the most recently used. Raises OSError."""
    if not os.access(path, os.F_OK):
        # Asked first, since opening a missing file raises, which takes longer than both.
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        data = os.read(descriptor, size)
        while len(data) < size and (more := os.read(descriptor, size - len(data))):
            data += more
        if use:
            mark_used(descriptor)
        return data
    finally:
        os.close(descriptor)


def mark_used(descriptor: int) -> None:
    """Set the time of last use; the kernel's own time stamps are some milliseconds coarse."""
    now = time.time_ns()
    os.utime(descriptor, ns=(now, now))
