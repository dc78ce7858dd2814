"""Data that an embedded server cannot read: written by a newer program, or by another one, or damaged.

Such a server ends, and would do so at every start. Its data are a cache, and this node's files have most of it, so the
data are set aside, once, and the server starts without them. That needs an error about the data in the server's log.
"""

from __future__ import annotations

import os
import shutil
from typing import Final

#: Messages of Redis 6.2 and 7 and Valkey before they end on data that they cannot read.
_WORDS: Final = (b"reading the append only file", b"AOF loading aborted", b"Can't handle RDB format version")
#: Bytes of the log that are searched.
_MOST_LOG: Final = 1 << 16


def log_size(path: str) -> int:
    """Return the size of a server's log; 0 where there is none."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def unreadable(log: str, since: int) -> bool:
    """Return whether the log says, from an offset on, that the data cannot be read. Raises OSError."""
    try:
        with open(log, "rb") as file:
            file.seek(since)
            text = file.read(_MOST_LOG)
    except FileNotFoundError:
        return False
    return any(word in text for word in _WORDS)


def set_aside(data: str) -> None:
    """Rename a folder of data, in place of the one set aside before. Raises OSError."""
    aside = f"{data}.unreadable"
    shutil.rmtree(aside, ignore_errors=True)
    os.rename(data, aside)
