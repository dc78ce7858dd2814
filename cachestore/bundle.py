"""One file with many entries of a namespace, signed as a whole.

    header   magic "PLRB", format version, key id (8), length of the namespace, namespace; CRC-32 of all these
    entries  each: 1, digest (32), length (8), the signed entry as in Redis
    end      0, number of entries (8), sum of their lengths (8)
    tag      HMAC-SHA256 over a label and the SHA-256 of everything above

Guarantees: the file appears complete or not at all; reading and writing hold one entry in memory at a time; nothing but
the header is read before the tag over the whole file has been checked, so a bundle that was cut short, reordered, added
to or changed anywhere yields no entry. The entries' own signatures could not show a missing one.

A header with a wrong check sum is *corrupt*, like every other damage; only an intact header that names another signing
key is *forged* (see `entry`).
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

from .deferred_dataclass import dataclass
from .errors import BundleCorrupt, BundleForged
from .signing import KEY_ID_SIZE, TAG_SIZE, SigningKey

_MAGIC: Final = b"PLRB"
_FORMAT: Final = 1
#: magic, format version, key id, length of the namespace; the namespace and the CRC-32 of both follow.
_HEADER: Final = struct.Struct(f">4sB{KEY_ID_SIZE}sB")
_CRC: Final = struct.Struct(">I")
#: kind, digest, length
_ENTRY: Final = struct.Struct(">B32sQ")
#: kind, number of entries, sum of their lengths
_END: Final = struct.Struct(">BQQ")
_ENTRY_FOLLOWS: Final = b"\1"
_LABEL: Final = b"poolrt bundle\0"
#: Bytes read at a time.
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class BundledEntry:
    """The place of an entry in a bundle; `bytes` is its size."""

    digest: str
    offset: int
    bytes: int


def write_bundle(
    path: str, signing: SigningKey, namespace: str, entries: Iterable[tuple[str, bytes]]
) -> tuple[int, int]:
    """Write entries, given as digest and signed bytes, to a new file at `path`, or in place of the file there.

    Returns their number and the sum of their sizes in bytes. Raises OSError when the file cannot be written; a former
    file at `path` then stays. The file's mode is 0600.
    """
    path = os.path.realpath(path)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise FileExistsError(errno.EEXIST, "there is something that is not a file", path)
    draft = f"{path}.{os.urandom(8).hex()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            written = _write(file, signing, namespace.encode(), entries)
            file.flush()
            os.fsync(descriptor)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
    return written


def _write(
    file: BinaryIO, signing: SigningKey, namespace: bytes, entries: Iterable[tuple[str, bytes]]
) -> tuple[int, int]:
    digest = hashlib.sha256()

    def put(data: bytes) -> None:
        digest.update(data)
        file.write(data)

    header = _HEADER.pack(_MAGIC, _FORMAT, signing.id, len(namespace)) + namespace
    put(header + _CRC.pack(zlib.crc32(header)))
    count = total = 0
    for name, blob in entries:
        put(_ENTRY.pack(_ENTRY_FOLLOWS[0], bytes.fromhex(name), len(blob)))
        put(blob)
        count += 1
        total += len(blob)
    put(_END.pack(0, count, total))
    file.write(signing.sign(_LABEL + digest.digest()))
    return count, total


class Bundle:
    """A bundle whose signature has been checked: the namespace it comes from, and its entries in their order."""

    def __init__(self, file: BinaryIO, path: str, signing: SigningKey) -> None:
        self._file = file
        self._path = path
        size = os.fstat(file.fileno()).st_size
        self.namespace, start = self._header(signing, size)
        self._check_tag(signing, size - TAG_SIZE)
        self.entries: tuple[BundledEntry, ...] = tuple(self._table(start, size - TAG_SIZE))

    def read(self, entry: BundledEntry) -> bytes:
        """Return the signed bytes of an entry. Verify them again: the file may have changed since."""
        self._file.seek(entry.offset)
        return self._exactly(entry.bytes)

    def _header(self, signing: SigningKey, size: int) -> tuple[str, int]:
        """Return the namespace and where the entries begin."""
        if size < _HEADER.size:
            raise BundleCorrupt(self._path, f"only {size} bytes")
        fixed = self._exactly(_HEADER.size)
        magic, version, key_id, length = _HEADER.unpack(fixed)
        if magic != _MAGIC:
            raise BundleCorrupt(self._path, "it is no bundle")
        if version != _FORMAT:
            raise BundleCorrupt(self._path, f"it has format {version}; this version reads format {_FORMAT}")
        rest = self._exactly(length + _CRC.size)
        namespace = rest[:length]
        if _CRC.unpack_from(rest, length)[0] != zlib.crc32(fixed + namespace):
            raise BundleCorrupt(self._path, "the header has a wrong check sum")
        if key_id != signing.id:
            raise BundleForged(self._path, key_id.hex(), signing.id.hex())
        start = len(fixed) + len(rest)
        if size < start + _END.size + TAG_SIZE:
            raise BundleCorrupt(self._path, "it is cut short")
        # Any name is allowed: nothing is looked up by it, and the tag covers it.
        return namespace.decode("utf-8", "replace"), start

    def _check_tag(self, signing: SigningKey, end: int) -> None:
        digest = hashlib.sha256()
        self._file.seek(0)
        while end > 0:
            chunk = self._exactly(min(end, _CHUNK))
            digest.update(chunk)
            end -= len(chunk)
        if not signing.matches(_LABEL + digest.digest(), self._exactly(TAG_SIZE)):
            raise BundleCorrupt(self._path, "the signature does not match: it was changed or is not complete")

    def _table(self, offset: int, end: int) -> Iterator[BundledEntry]:
        """Yield the entries; order and lengths are genuine, unless the file changed after the check of its tag."""
        count = total = 0
        while True:
            self._file.seek(offset)
            if self._exactly(1) != _ENTRY_FOLLOWS:
                break
            self._file.seek(offset)
            _, digest, length = _ENTRY.unpack(self._exactly(_ENTRY.size))
            yield BundledEntry(digest.hex(), offset + _ENTRY.size, length)
            offset += _ENTRY.size + length
            count += 1
            total += length
        self._file.seek(offset)
        if offset + _END.size != end or _END.unpack(self._exactly(_END.size)) != (0, count, total):
            raise BundleCorrupt(self._path, "its table does not add up")

    def _exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise BundleCorrupt(self._path, "it is cut short")
        return data


@contextmanager
def open_bundle(path: str, signing: SigningKey) -> Iterator[Bundle]:
    """Open a bundle and check it as a whole.

    Raises BundleForged when it is signed with another key, BundleCorrupt when it differs from what was written, and
    OSError when the file cannot be read.
    """
    # Without O_NONBLOCK, opening a pipe without a writer would hang.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BundleCorrupt(path, "it is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        yield Bundle(file, path, signing)
