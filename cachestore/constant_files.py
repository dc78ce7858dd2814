"""Constants of models, in the layouts of plans, as files that all processes of a node map.

    <home>/<namespace>/constants/<boot>/<digest>         the bytes of one constant, then a page that describes them
    <home>/<namespace>/constants/<boot>/<digest>.part    the same while a process writes it, under its lock

Guarantees: a file appears complete or not at all, and is never changed afterwards: who maps it keeps its bytes, even if
it is evicted. One process of a node writes a constant while the others wait, for `_WAIT_S` at most. A file of another size,
owner, mode or description is a miss: it is counted and removed. A crash of the machine may tear files, so those that were
written before it was started are compared with their checksums once. The checksum covers the first word of each block, because
file systems write whole blocks. It finds accidents; nothing but the folder's owner and mode keeps others from changing a file.
"""

from __future__ import annotations

import os
import stat
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Final

from .errors import PathRefused
from .file_lock import is_same_file, lock_file
from .folders import make_folder, open_file
from .forked_locks import freed_in_children
from .mapping import MappedBytes, map_bytes, reserve_bytes
from .ownership import check_folder

#: Bytes of the description; the constant before it ends on such a boundary, so that kernels may read behind it.
_PAGE: Final = 4096
#: The description: what it is, the size and the checksum of the constant, and its digest.
_RECORD: Final = struct.Struct("<16sQI32s")
_MAGIC: Final = b"poolrt constant2"
#: Bytes that file systems write as a whole: a torn file has or lacks such pieces.
_BLOCK: Final = 4096
#: Longest wait, in seconds, for another process that writes the same constant: some GB a second are usual.
_WAIT_S: Final = 20.0
#: Age, in seconds, at which an unfinished file counts as left by a crashed process.
_ABANDONED_S: Final = 3600.0
#: A use is noted in a file's time if the time noted last is older, in seconds.
_USE_S: Final = 60.0
#: Between two looks at the folder, a process writes at most one part in this many of its capacity.
_LOOKS: Final = 8
#: Bytes of one write. A file system takes blocks of memory as large as a write, and those of a mebibyte and more are often ones
#: that the host of a virtual machine has taken back: it needs milliseconds to supply each.
_PIECE: Final = 256 << 10
_BOOT: Final = "/proc/sys/kernel/random/boot_id"


class ConstantFiles:
    """The constants of a node in a folder, `capacity_bytes` at most; the least recently used are removed first.

    Any number of threads and processes may use it. No method raises OSError: without a folder that can be used, nothing is
    found or kept. ``read_only`` writes and removes nothing. `counts` has ``found``, ``missed``, ``written``, ``refused`` (a
    file that was damaged or not this user's), ``failed`` (not written) and ``evicted``.
    """

    def __init__(self, folder: str, capacity_bytes: int, read_only: bool = False) -> None:
        self._folder: Final = folder
        self._capacity: Final = capacity_bytes
        self._read_only: Final = read_only
        self._lock = freed_in_children(threading.Lock())
        self._written_since: int | None = None
        self._usable: bool | None = None
        self.counts: Final[Counter[str]] = Counter()

    def find_or_write(self, digest: str, nbytes: int, make: Callable[[], memoryview]) -> MappedBytes | None:
        """Return the bytes of a constant; if no process has written them, write those that ``make`` returns.

        ``digest`` is 64 hexadecimal digits of what determines the bytes. None, before or after ``make`` was called, if the
        bytes cannot be kept. Raises what ``make`` raises.
        """
        descriptor = self.open_or_write(digest, nbytes, make)
        if descriptor is None:
            return None
        try:
            return _map(descriptor, nbytes)
        finally:
            os.close(descriptor)

    def open_or_write(self, digest: str, nbytes: int, make: Callable[[], memoryview] | None = None) -> int | None:
        """Return a descriptor of the file of a constant, for `map_constant`; the caller closes it.

        If no process has written it, write what ``make`` returns. None if there is no file.
        """
        if nbytes > self._capacity or not self._is_usable():
            return None
        try:
            found = self._find(digest, nbytes)
            if found is not None or self._read_only or make is None:
                self.counts["missed" if found is None else "found"] += 1
                return found
            self.counts["missed"] += 1
            return self._write(digest, nbytes, make)
        except OSError:
            self.counts["failed"] += 1
            return None

    def sweep(self) -> None:
        """Remove the least recently used files beyond the capacity, and what crashed processes have left."""
        files: list[tuple[float, int, str]] = []
        now = time.time()
        for path, status in self._files():
            if path.endswith(".part"):
                if now - status.st_mtime > _ABANDONED_S:
                    _remove(path)
            else:
                files.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._capacity:
                break
            _remove(path)
            self.counts["evicted"] += 1
            total -= size
        self._written_since = 0

    def _is_usable(self) -> bool:
        if self._usable is None:
            try:
                check_folder(self._folder)
                self._usable = True
            except PathRefused:
                self.counts["refused"] += 1
                self._usable = False
        return self._usable

    def _find(self, digest: str, nbytes: int) -> int | None:
        here = self._path(digest)
        found = self._open(here, digest, nbytes)
        if found is not None or self._read_only:
            return found
        for boot in self._boots():
            path = os.path.join(self._folder, boot, digest)
            found = self._open(path, digest, nbytes, verify=True)
            if found is not None:
                try:
                    make_folder(os.path.dirname(here))
                    os.rename(path, here)
                except BaseException:
                    os.close(found)
                    raise
                return found
        return None

    def _open(self, path: str, digest: str, nbytes: int, verify: bool = False) -> int | None:
        """Open a file and check it; one that is not sound is removed."""
        try:
            descriptor = open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            if _is_sound(descriptor, digest, nbytes, verify):
                if not self._read_only and time.time() - os.fstat(descriptor).st_mtime > _USE_S:
                    os.utime(descriptor)
                return descriptor
            self.counts["refused"] += 1
            if not self._read_only:
                _remove(path)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def _write(self, digest: str, nbytes: int, make: Callable[[], memoryview]) -> int | None:
        path = self._path(digest)
        part = f"{path}.part"
        while True:
            descriptor = open_file(part, os.O_RDWR | os.O_CREAT)
            try:
                lock_file(descriptor, part, _WAIT_S)
                found = self._open(path, digest, nbytes)
                if found is not None:  # another process has written it since
                    if is_same_file(descriptor, part):
                        _remove(part)
                    return found
                if not is_same_file(descriptor, part):
                    continue  # the process that had the lock has failed and removed its file
                try:
                    _fill(descriptor, digest, make()[:nbytes])
                    os.rename(part, path)
                except BaseException:
                    _remove(part)
                    raise
            finally:
                os.close(descriptor)
            self.counts["written"] += 1
            self._note_written(nbytes)
            return self._open(path, digest, nbytes)

    def _note_written(self, nbytes: int) -> None:
        with self._lock:
            since = self._written_since
            self._written_since = nbytes if since is None else since + nbytes
            if since is None or self._written_since > self._capacity // _LOOKS:
                self.sweep()

    def _path(self, digest: str) -> str:
        return os.path.join(self._folder, _boot_id(), digest)

    def _boots(self) -> list[str]:
        """Return the names of the folders of earlier starts of the machine."""
        own = _boot_id()
        try:
            return [name for name in os.listdir(self._folder) if name != own]
        except FileNotFoundError:
            return []

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        for boot in [_boot_id(), *self._boots()]:
            folder = os.path.join(self._folder, boot)
            try:
                with os.scandir(folder) as items:
                    names = [item.path for item in items]
            except OSError:
                continue
            if not names and boot != _boot_id():
                with suppress(OSError):
                    os.rmdir(folder)
            for path in names:
                with suppress(FileNotFoundError):
                    yield path, os.lstat(path)


def map_constant(descriptor: int, digest: str, nbytes: int) -> MappedBytes | None:
    """Map the open file of a constant; None if it is none, or not sound, or cannot be mapped."""
    return _map(descriptor, nbytes) if _is_sound(descriptor, digest, nbytes) else None


def size_of_constant(descriptor: int) -> int | None:
    """Return the bytes of the constant that an open file describes itself as; None if it has no description."""
    record = os.pread(descriptor, _RECORD.size, max(os.fstat(descriptor).st_size - _PAGE, 0))
    if len(record) < _RECORD.size:
        return None
    magic, nbytes, _, _ = _RECORD.unpack(record)
    return int(nbytes) if magic == _MAGIC else None


def _map(descriptor: int, nbytes: int) -> MappedBytes | None:
    return map_bytes(descriptor, _padded(nbytes) + _PAGE)


def _padded(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE


def _is_sound(descriptor: int, digest: str, nbytes: int, verify: bool = False) -> bool:
    """Return whether an open file is this user's and describes itself as the constant; ``verify`` compares its checksum."""
    status, content = os.fstat(descriptor), _padded(nbytes)
    own = status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o022 == 0
    if not own or not stat.S_ISREG(status.st_mode) or status.st_size != content + _PAGE:
        return False
    magic, size, checksum, name = _RECORD.unpack(os.pread(descriptor, _RECORD.size, content))
    if (magic, size, name) != (_MAGIC, nbytes, bytes.fromhex(digest)):
        return False
    if not verify:
        return True
    mapped = _map(descriptor, nbytes)
    return mapped is not None and _checksum(mapped.view[:nbytes]) == checksum


def _fill(descriptor: int, digest: str, content: memoryview) -> None:
    os.ftruncate(descriptor, 0)  # what a process that was killed has left; no process maps it
    reserve_bytes(descriptor, _padded(len(content)) + _PAGE)
    rest = content
    while rest:
        rest = rest[os.write(descriptor, rest[:_PIECE]) :]
    padding = bytes(-len(content) % _PAGE)
    record = _RECORD.pack(_MAGIC, len(content), _checksum(content), bytes.fromhex(digest))
    rest = memoryview(padding + record.ljust(_PAGE, b"\0"))
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _checksum(content: memoryview) -> int:
    """Return the checksum of the first word of each whole block, and of the rest."""
    whole = len(content) // _BLOCK * _BLOCK
    words = content[:whole].cast("Q")[:: _BLOCK // 8]
    return zlib.crc32(content[whole:], zlib.crc32(words.tobytes()))


@lru_cache(maxsize=1)
def _boot_id() -> str:
    """Return the name of the machine's present start."""
    with open(_BOOT, encoding="ascii") as file:
        return file.read().strip()


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
