"""The names of what has asked for keys on this node, such as models.

    <home>/<namespace>/asks    lines of text: the name as UTF-8 in Base64, beginnings of digests joined by commas

The file is bounded; the oldest lines go first. Lines that are damaged or not whole are left out.
"""

from __future__ import annotations

import binascii
import time
from _thread import allocate_lock
from collections.abc import Sequence
from typing import Final

from .bounded_log import MAX_BYTES, BoundedLog
from .key import Key

#: Characters of a name, and digits of a digest, that are kept.
_NAME: Final = 200
_DIGITS: Final = 16
#: Keys of one line: a line is at most an eighth of the file.
_KEYS: Final = MAX_BYTES // 8 // (_DIGITS + 1) - _NAME
#: Seconds in which a process notes the same name with the same keys once, and names that it remembers for that.
_SAME_S: Final = 60.0
_MOST_REMEMBERED: Final = 256


class AskLog:
    """Note which name asked for which keys, and return the last for each. Both methods raise OSError."""

    def __init__(self, path: str) -> None:
        self._log = BoundedLog(path)
        self._lock = allocate_lock()
        self._noted: dict[tuple[str, tuple[str, ...]], float] = {}

    def note(self, name: str, keys: Sequence[Key]) -> None:
        """Write down that ``name`` needs these keys; of very many, the first."""
        name = name[:_NAME]
        digests = tuple(key.digest[:_DIGITS] for key in keys[:_KEYS])
        now = time.monotonic()
        with self._lock:
            if not digests or now - self._noted.get((name, digests), -_SAME_S) < _SAME_S:
                return
            if len(self._noted) >= _MOST_REMEMBERED:
                self._noted.clear()
            self._noted[name, digests] = now
        encoded = binascii.b2a_base64(name.encode("utf-8", "replace"), newline=False)
        self._log.append(b"%b %b\n" % (encoded, ",".join(digests).encode("ascii")))

    def names(self) -> AskedBy:
        """Return the name that asked last for each key."""
        found: dict[str, str] = {}
        for line in self._log.lines():
            encoded, _, digests = line.partition(b" ")
            try:
                name = binascii.a2b_base64(encoded, strict_mode=True).decode("utf-8")
            except ValueError:
                continue
            found.update((digest.decode("ascii"), name) for digest in digests.split(b",") if _is_beginning(digest))
        return AskedBy(found)


def _is_beginning(digest: bytes) -> bool:
    return len(digest) == _DIGITS and not digest.strip(b"0123456789abcdef")


class AskedBy:
    """The name that asked last for each key."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def get(self, digest: str) -> str | None:
        """Return the name for a digest; None if none is known."""
        return self._names.get(digest[:_DIGITS])
