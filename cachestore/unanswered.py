"""Batches of counts that Redis has not answered, left behind by processes that have ended.

One line each: `<sender> <number> <counter>=<count>,...`. Whoever takes them sends them as they are (see `sender`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from .file_lock import lock_file
from .folders import make_folder
from .stats import COUNTERS, Sent

#: Longest wait, in seconds, for another process's few system calls.
_LOCK_S: Final = 0.2
#: Size, in bytes, that is never exceeded: what does not fit is not kept.
_MAX_BYTES: Final = 1 << 20


class UnansweredFile:
    """Append batches, and take them all out again. Every method raises OSError when the file cannot be used."""

    def __init__(self, path: str) -> None:
        self._path = path

    def append(self, batches: Iterable[Sent]) -> None:
        """Add batches."""
        data = "".join(map(_encode, batches)).encode()
        make_folder(os.path.dirname(self._path))
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            lock_file(descriptor, self._path, _LOCK_S)
            if os.fstat(descriptor).st_size + len(data) <= _MAX_BYTES:
                os.write(descriptor, data)
        finally:
            os.close(descriptor)

    def take(self) -> list[Sent]:
        """Return all batches, oldest first, and empty the file."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return []
        try:
            if os.fstat(descriptor).st_size == 0:
                return []
            lock_file(descriptor, self._path, _LOCK_S)
            data = os.pread(descriptor, _MAX_BYTES, 0)
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)
        found = (_decode(line) for line in data.decode("ascii", "replace").splitlines())
        return [batch for batch in found if batch is not None]


def _encode(batch: Sent) -> str:
    counts = ",".join(f"{name}={count}" for name, count in batch.counts.items())
    return f"{batch.sender} {batch.number} {counts}\n"


def _decode(line: str) -> Sent | None:
    """Return the batch in a line; None for a line that was torn by a crash or a full disk."""
    parts = line.split(" ")
    if len(parts) != 3 or not parts[0].isalnum() or not parts[1].isdigit():
        return None
    pairs = [pair.partition("=") for pair in parts[2].split(",")]
    if not all(name in COUNTERS and count.isdigit() for name, _, count in pairs):
        return None
    return Sent(parts[0], int(parts[1]), {name: int(count) for name, _, count in pairs})
