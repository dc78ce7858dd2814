"""What processes without a connection have counted and used, until one with a connection folds it into Redis.

Lines of text in one append-only file per namespace and node: `<counter> <count>`, `use <digest>`, or, for a batch that
Redis has not answered and may have counted, `sent <sender> <number> <counter>=<count>,...`. Writers and readers hold the
file's lock for a few microseconds. The file is bounded: past `_MAX_BYTES` it is rewritten with equal lines added up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

from .file_lock import lock_file
from .folders import make_folder
from .key import is_digest
from .stats import COUNTERS, Batch, Sent, merge

#: Size, in bytes, at which the journal is added up.
_MAX_BYTES: Final = 256 * 1024
#: Uses and sent batches that survive an adding up; older ones are forgotten first.
_MAX_USES: Final = 2048
_MAX_SENT: Final = 256
#: A sent batch: sender, number, counts.
_SENT: Final = re.compile(r"([0-9a-zA-Z]+) ([0-9]{1,18}) ([a-z_.]+=[0-9]{1,18}(?:,[a-z_.]+=[0-9]{1,18})*)")
#: Longest wait, in seconds, for another process's few system calls.
_LOCK_S: Final = 0.2


class Journal:
    """Append counts and uses, and take them all out again. Every method raises OSError when the file cannot be used."""

    def __init__(self, path: str) -> None:
        self._path = path

    def append(self, batch: Batch) -> None:
        """Add one batch."""
        data = _encode(batch)
        if not data:
            return
        descriptor = self._locked(os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, data)
            if os.fstat(descriptor).st_size > _MAX_BYTES:
                total = _decode(_read(descriptor))
                os.ftruncate(descriptor, 0)
                os.write(descriptor, _encode(Batch(total.counts, total.uses[-_MAX_USES:], total.sent[-_MAX_SENT:])))
        finally:
            os.close(descriptor)

    def read(self) -> Batch:
        """Return the sum of everything in the journal."""
        try:
            descriptor = self._locked(os.O_RDONLY)
        except FileNotFoundError:
            return Batch({}, ())
        try:
            return _decode(_read(descriptor))
        finally:
            os.close(descriptor)

    def take(self) -> Batch:
        """Return the sum of everything in the journal and empty it."""
        try:
            descriptor = self._locked(os.O_RDWR)
        except FileNotFoundError:
            return Batch({}, ())
        try:
            data = _read(descriptor)
            if data:
                os.ftruncate(descriptor, 0)
            return _decode(data)
        finally:
            os.close(descriptor)

    def _locked(self, flags: int) -> int:
        try:
            descriptor = os.open(self._path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            make_folder(os.path.dirname(self._path))
            descriptor = os.open(self._path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            lock_file(descriptor, self._path, _LOCK_S)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


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


def _decode(data: bytes) -> Batch:
    return merge(_batches(data))


def _batches(data: bytes) -> Iterator[Batch]:
    """Yield one batch a line; a line that was torn by a crash or a full disk is left out."""
    for line in data.decode("ascii", "replace").splitlines():
        name, _, value = line.partition(" ")
        if name == "sent":
            found = _SENT.fullmatch(value)
            pairs = [pair.split("=") for pair in found[3].split(",")] if found is not None else []
            if found is not None and all(counter in COUNTERS for counter, _ in pairs):
                counts = {counter: int(count) for counter, count in pairs}
                yield Batch({}, (), (Sent(found[1], int(found[2]), counts),))
        elif name == "use" and is_digest(value):
            yield Batch({}, (value,))
        elif name in COUNTERS and value.isdigit() and len(value) <= 18:
            yield Batch({name: int(value)}, ())
