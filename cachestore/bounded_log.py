"""A file of lines that processes of a node append to: bounded, the oldest lines go first."""

from __future__ import annotations

import os
from typing import Final

from .file_lock import open_locked

#: Size, in bytes, at which the older half of the file is dropped.
MAX_BYTES: Final = 512 * 1024


class BoundedLog:
    """The lines at ``path``. Both methods raise OSError when the file cannot be used."""

    def __init__(self, path: str) -> None:
        self._path = path

    def append(self, data: bytes) -> None:
        """Append whole lines; of more than `MAX_BYTES` bytes, the end."""
        with open_locked(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as descriptor:
            size = os.fstat(descriptor).st_size
            if size + len(data) > MAX_BYTES:
                self._shorten(descriptor, size)
            os.write(descriptor, data[-MAX_BYTES:])

    def lines(self) -> list[bytes]:
        """Return the lines, the oldest first; the caller leaves out damaged ones."""
        try:
            with open(self._path, "rb") as file:
                return file.read(2 * MAX_BYTES).splitlines()
        except FileNotFoundError:
            return []

    def _shorten(self, descriptor: int, size: int) -> None:
        """Keep the newer half, from the beginning of a line on."""
        kept = os.pread(descriptor, MAX_BYTES // 2, max(0, size - MAX_BYTES // 2))
        os.ftruncate(descriptor, 0)
        os.write(descriptor, kept[kept.find(b"\n") + 1 :])
