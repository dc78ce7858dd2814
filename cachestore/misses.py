"""The latest keys that this node has missed, so that a miss can be explained afterwards.

    <home>/<namespace>/misses    lines of text: time in seconds since the epoch, the canonical key in Base64

Repeated requests for a key, or a look-up and then a creation, are one miss: a process notes it once in a while, and
readers take misses close in time for one. The file is bounded; the oldest lines go first. Lines that are damaged or not
whole are left out.
"""

from __future__ import annotations

import binascii
import threading
import time
from collections.abc import Sequence
from typing import Final

from .bounded_log import BoundedLog
from .deferred_namedtuple import NamedTuple
from .key import Key

#: Largest key, in bytes, that is noted.
_MAX_KEY: Final = 32 * 1024
#: Longest time, in seconds, between two requests for a key that count as one miss.
_SAME_MISS_S: Final = 600.0
#: Seconds since the epoch that no clock shows; a later time, or one that is not a number, is damage.
_END_OF_TIME: Final = 1e11
#: Keys that a process remembers to have noted.
_MOST_REMEMBERED: Final = 4096


class Miss(NamedTuple):
    """A key that was not there, and when it was first missed, in seconds since the epoch."""

    key: Key
    time: float


class MissLog:
    """Note misses, and return the latest. Both methods raise OSError when the file cannot be used."""

    def __init__(self, path: str) -> None:
        self._log = BoundedLog(path)
        self._lock = threading.RLock()
        self._noted: dict[bytes, float] = {}

    def note(self, keys: Sequence[Key], since_s: float = 0.0) -> None:
        """Write down keys that were not there `since_s` seconds ago."""
        now = time.time() - since_s
        with self._lock:
            fresh = [key.canonical for key in keys if now - self._noted.get(key.canonical, 0.0) > _SAME_MISS_S / 2]
            if len(self._noted) + len(fresh) > _MOST_REMEMBERED:
                self._noted.clear()
            self._noted.update(dict.fromkeys(fresh, now))
        data = b"".join(
            b"%.6f %b" % (now, binascii.b2a_base64(canonical)) for canonical in fresh if len(canonical) <= _MAX_KEY
        )
        if data:
            self._log.append(data)

    def latest(self, count: int) -> list[Miss]:
        """Return the latest misses, the latest one last, each key once."""
        first: dict[bytes, float] = {}
        last: dict[bytes, float] = {}
        for line in self._log.lines():
            try:
                stamp, encoded = line.split(b" ")
                when, canonical = float(stamp), binascii.a2b_base64(encoded, strict_mode=True)
            except ValueError:
                continue
            if not 0.0 <= when < _END_OF_TIME:
                continue
            if when - last.get(canonical, 0.0) > _SAME_MISS_S:
                first[canonical] = when
            last.pop(canonical, None)
            last[canonical] = when
        found: list[Miss] = []
        for canonical in reversed(last):
            if len(found) == count:
                break
            try:
                found.append(Miss(Key.from_canonical(canonical), first[canonical]))
            except ValueError:
                continue
        found.reverse()
        return found
