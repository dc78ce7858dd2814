"""How often look-ups of this node have found each entry, in memory, files or Redis.

    <home>/<namespace>/hits    lines of text: the beginning of a digest, a count

Processes add lines at most once a second, and when they end; a killed process loses the counts of its last second. Past
`_MAX_BYTES`, the lines of each digest are added up, and the digests that were found least recently are forgotten.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from .file_lock import open_locked

#: Size, in bytes, at which the file is added up, and digests that are kept then: half of it.
_MAX_BYTES: Final = 512 * 1024
_MOST: Final = 8192
_DIGITS: Final = 16
#: More digits of a count than these are damage. Compiled when it is used: adding counts is part of a warm start.
_LINE: Final = rb"([0-9a-f]{%d}) ([0-9]{1,15})" % _DIGITS


class HitLog:
    """Count hits by digest. Both methods raise OSError."""

    def __init__(self, path: str) -> None:
        self._path = path

    def add(self, counts: Mapping[str, int]) -> None:
        """Add counts by digest."""
        data = _encode({digest[:_DIGITS]: count for digest, count in counts.items()})
        if not data:
            return
        with open_locked(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as descriptor:
            size = os.fstat(descriptor).st_size
            if size + len(data) > _MAX_BYTES:
                total = _sums(os.pread(descriptor, 2 * _MAX_BYTES, 0) + b"\n" + data)
                data = _encode(dict(list(total.items())[-_MOST:]))
                os.ftruncate(descriptor, 0)
            os.write(descriptor, data)

    def counts(self) -> HitCounts:
        """Return the counts of all processes of this node."""
        try:
            with open(self._path, "rb") as file:
                return HitCounts(_sums(file.read(4 * _MAX_BYTES)))
        except FileNotFoundError:
            return HitCounts({})


class HitCounts:
    """How often each entry was found."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    def get(self, digest: str) -> int:
        """Return the count of a digest; 0 if none is known."""
        return self._counts.get(digest[:_DIGITS], 0)


def _encode(counts: Mapping[str, int]) -> bytes:
    return "".join(f"{digest} {count}\n" for digest, count in counts.items()).encode("ascii")


def _sums(data: bytes) -> dict[str, int]:
    """Return the sums by digest, the last found last; a line that a crash or a full disk has torn is left out."""
    found: dict[str, int] = {}
    for line in data.splitlines():
        if match := re.fullmatch(_LINE, line):
            digest = match[1].decode("ascii")
            found[digest] = found.pop(digest, 0) + int(match[2])
    return found
