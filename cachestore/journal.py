"""Counts and uses of processes without a connection, until a process with a connection sends them to Redis.

Lines of text in one append-only file per namespace and node: `<counter> <count>`, `use <digest>`, or, for a batch that
Redis has not answered and may have counted, `sent <sender> <number> <counter>=<count>,...`. Writers and readers hold
the file's lock for a few microseconds. Past `_MAX_BYTES`, the file is rewritten with equal lines added up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from .file_lock import open_locked
from .key import is_digest

if TYPE_CHECKING:
    from .stats import Batch

#: Size, in bytes, at which the journal is added up.
_MAX_BYTES: Final = 256 * 1024
#: Uses and sent batches that survive an adding up; older ones are forgotten first.
_MAX_USES: Final = 2048
_MAX_SENT: Final = 256
#: A sent batch: sender, number, counts. More digits than these are damage.
_SENT: Final = r"([0-9a-zA-Z]+) ([0-9]{1,18}) ([a-z_.]+=[0-9]{1,18}(?:,[a-z_.]+=[0-9]{1,18})*)"
_COUNT: Final = r"[0-9]{1,18}"


class Journal:
    """Append counts and uses, and take them all out again. Every method raises OSError when the file cannot be used."""

    def __init__(self, path: str) -> None:
        self._path = path

    def append(self, batch: Batch) -> None:
        """Add one batch."""
        data = _encode(batch)
        if data:
            self._append(data)

    def append_hit(self, digest: str, saved_s: float) -> None:
        """Add a hit in files, of an entry whose creation took `saved_s` seconds; needs nothing of `stats`."""
        saved = f"saved_us {round(saved_s * 1e6)}\n" if saved_s > 0.0 else ""
        self._append(f"hits.files 1\n{saved}use {digest}\n".encode())

    def read(self) -> Batch:
        """Return the sum of everything in the journal."""
        return self._sum(os.O_RDONLY)

    def take(self) -> Batch:
        """Return the sum of everything in the journal and empty it."""
        return self._sum(os.O_RDWR)

    def _append(self, data: bytes) -> None:
        with open_locked(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as descriptor:
            os.write(descriptor, data)
            if os.fstat(descriptor).st_size > _MAX_BYTES:
                total = _sum(_read(descriptor))
                kept = total._replace(uses=total.uses[-_MAX_USES:], sent=total.sent[-_MAX_SENT:])
                os.ftruncate(descriptor, 0)
                os.write(descriptor, _encode(kept))

    def _sum(self, flags: int) -> Batch:
        """Return the sum of everything; opened for writing too, the file is emptied."""
        data = b""
        try:
            with open_locked(self._path, flags) as descriptor:
                data = _read(descriptor)
                if data and flags == os.O_RDWR:
                    os.ftruncate(descriptor, 0)
        except FileNotFoundError:
            pass  # nothing has been appended yet
        return _sum(data)


def _read(descriptor: int) -> bytes:
    chunks = []
    offset = 0
    while chunk := os.pread(descriptor, 1 << 20, offset):
        chunks.append(chunk)
        offset += len(chunk)
    return b"".join(chunks)


def _encode(batch: Batch) -> bytes:
    lines = [f"{name} {count}\n" for name, count in batch.counts.items()]
    lines += [f"use {digest}\n" for digest in batch.uses]
    for sender, number, counts in batch.sent:
        lines.append(f"sent {sender} {number} {','.join(f'{name}={count}' for name, count in counts.items())}\n")
    return "".join(lines).encode()


def _sum(data: bytes) -> Batch:
    from .stats import merge

    return merge(_batches(data))


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return those of a sent batch and of a count, made on first use: a warm start only appends."""
    return re.compile(_SENT), re.compile(_COUNT)


def _batches(data: bytes) -> Iterator[Batch]:
    """Yield one batch a line; a line that a crash or a full disk has torn is left out."""
    from .stats import COUNTERS, Batch, Sent

    sent, number = _patterns()
    for line in data.decode("ascii", "replace").splitlines():
        name, _, value = line.partition(" ")
        if name == "sent" and (found := sent.fullmatch(value)):
            counts = {counter: int(count) for counter, count in (pair.split("=") for pair in found[3].split(","))}
            if counts.keys() <= set(COUNTERS):
                yield Batch({}, (), (Sent(found[1], int(found[2]), counts),))
        elif name == "use" and is_digest(value):
            yield Batch({}, (value,))
        elif name in COUNTERS and number.fullmatch(value):
            yield Batch({name: int(value)}, ())
