"""Locks on files, with a bound on every wait.

`flock` belongs to the open file, not to the process: a forked child shares it, and the kernel frees it when the last
descriptor is closed, however the process ends. A plain blocking `flock` would wait for ever for a stopped holder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from .folders import open_file

#: Bounds, in seconds, for locks that are only held for a few system calls: by default, and for optional writes.
SHORT_S: Final = 2.0
_OPTIONAL_S: Final = 0.2
#: First and longest pause, in seconds, between two attempts.
_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.01


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock of an open file if it is free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_file(descriptor: int, path: str, seconds: float = SHORT_S) -> None:
    """Take the exclusive lock of an open file; raise TimeoutError (an OSError) after `seconds`."""
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE_S
    while not try_lock(descriptor):
        if time.monotonic() >= deadline:
            raise TimeoutError(errno.ETIMEDOUT, f"locked by another process for more than {seconds:g} s", path)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def unlock_file(descriptor: int) -> None:
    """Free the lock, also where a forked child still holds a copy of the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextmanager
def open_locked(path: str, flags: int) -> Iterator[int]:
    """Open a file, and its folder as `open_file` does, under its lock; raise OSError after `_OPTIONAL_S` seconds."""
    descriptor = open_file(path, flags | os.O_NOFOLLOW)
    try:
        lock_file(descriptor, path, _OPTIONAL_S)
        yield descriptor
    finally:
        os.close(descriptor)


def is_same_file(descriptor: int, path: str) -> bool:
    """Return whether `path` still names the open file."""
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
