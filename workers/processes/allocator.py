"""Settings of the C library's allocator, where it is glibc's; elsewhere they change nothing."""

from __future__ import annotations

import ctypes
from typing import Final

#: Bytes of freed memory that a process keeps, so that the next long message needs no fresh pages: these cost more than copies.
KEPT_BYTES: Final = 32 * 1024 * 1024

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8


def keep_freed_memory() -> None:
    """Keep `KEPT_BYTES` of freed memory, also of blocks as long as that, instead of returning it to the system at once."""
    _set(_M_TRIM_THRESHOLD, KEPT_BYTES)
    _set(_M_MMAP_THRESHOLD, KEPT_BYTES)


def use_one_heap() -> None:
    """Let all threads of this process share a heap.

    Freed memory of a graph then returns to the system: between two heaps, 20 MB more stayed after large ones. The threads
    wait for each other anyway. `KEPT_BYTES` stay until ``malloc_trim`` is called.
    """
    _set(_M_ARENA_MAX, 1)
    _set(_M_TRIM_THRESHOLD, KEPT_BYTES)


def _set(option: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(option, value)
