"""The prebuilt tier: one read-only file with parts of entries, which came with the package or was made for it.

    header   magic "PLRP", format version, number of parts (4), bytes of the description (4), SHA-256 of description and table
    about    the description: texts by name, as msgpack
    table    for each part, by digest: digest of its key (32), offset (8), length (8), SHA-256 of its bytes (32)
    parts

Parts have keys, as entries have, and no signature: a file that travels in a package cannot be signed with a node's secret.
Its trust is that of the package. Guarantees: a file is used only if no other user could change it who could not change the
code beside it; no part is returned whose bytes differ from those that were written. All else is a miss, counted as corrupt
or forged and printed once (PrebuiltRefused).
"""

from __future__ import annotations

import os
import stat
import struct
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Final

from .deferred_namedtuple import NamedTuple
from .digests import sha256
from .errors import EntryCorrupt, PathRefused, PrebuiltRefused
from .key import Key
from .ownership import check_folder
from .stats import Tally

_MAGIC: Final = b"PLRP"
_FORMAT: Final = 1
#: magic, format version, number of parts, bytes of the description, SHA-256 of description and table
_HEADER: Final = struct.Struct(">4sBII32s")
#: digest, offset, length, SHA-256
_PART: Final = struct.Struct(">32sQQ32s")
#: Bytes of description and table beyond which a file is refused unread.
_MOST_TABLE: Final = 64 << 20
_FOLDER: Final = os.path.dirname(os.path.abspath(__file__))
#: The file of the package.
PACKAGE_FILE: Final = os.path.join(_FOLDER, "prebuilt.parts")
_WRITABLE: Final = stat.S_IWGRP | stat.S_IWOTH


def prebuilt_file(choice: str) -> str | None:
    """Return the path that the option `prebuilt` means; None for "none"."""
    return None if choice == "none" else PACKAGE_FILE if choice == "package" else choice


def write_prebuilt(path: str, parts: Mapping[str, bytes], about: Mapping[str, str]) -> int:
    """Write parts by the digests of their keys, in place of a former file; return the file's size in bytes. Raises OSError.

    The file's mode is 0644: it holds nothing secret, and users of the package read it.
    """
    import msgpack

    description: bytes = msgpack.packb(dict(about))
    table, body = bytearray(), bytearray()
    start = _HEADER.size + len(description) + _PART.size * len(parts)
    places: dict[bytes, int] = {}
    for digest, part in sorted(parts.items()):
        if part not in places:
            places[part] = start + len(body)
            body += part
        table += _PART.pack(bytes.fromhex(digest), places[part], len(part), sha256(part).digest())
    seal = sha256(description + table).digest()
    content = _HEADER.pack(_MAGIC, _FORMAT, len(parts), len(description), seal) + description + table + body
    draft = f"{path}.{os.urandom(8).hex()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
    return len(content)


class _Place(NamedTuple):
    offset: int
    length: int
    seal: bytes


class PrebuiltFile:
    """The description and the table of a file, checked; its parts are read and checked as they are asked for."""

    def __init__(self, path: str) -> None:
        """Raises OSError, PathRefused if another user can change the file, and EntryCorrupt."""
        self.path = path
        descriptor = _descriptor(path)
        try:
            status = os.fstat(descriptor)
            _check_trust(path, status)
            head = os.pread(descriptor, _HEADER.size, 0)
            if len(head) != _HEADER.size or head[:4] != _MAGIC or head[4] != _FORMAT:
                raise EntryCorrupt("", "not a file of prebuilt parts in this format")
            _, _, count, described, seal = _HEADER.unpack(head)
            size = described + count * _PART.size
            rest = os.pread(descriptor, size, _HEADER.size) if size <= _MOST_TABLE else b""
        finally:
            os.close(descriptor)
        if len(rest) != size or sha256(rest).digest() != seal:
            raise EntryCorrupt("", "its table is damaged or not complete")
        #: The size of the file in bytes.
        self.bytes = status.st_size
        self._description = rest[:described]
        self._places = {digest: _Place(*place) for digest, *place in _PART.iter_unpack(rest[described:])}

    @property
    def about(self) -> dict[str, str]:
        """The description."""
        import msgpack

        found: dict[str, str] = msgpack.unpackb(self._description)
        return found

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: Key) -> bool:
        return bytes.fromhex(key.digest) in self._places

    def read(self, key: Key) -> bytes | None:
        """Return the part of a key, None if there is none. Raises OSError, and EntryCorrupt if its bytes have changed."""
        place = self._places.get(bytes.fromhex(key.digest))
        return None if place is None else self._read(key.digest, place)

    def parts(self) -> Iterator[tuple[str, bytes]]:
        """Yield the digest of each part's key, and the part. Raises as `read` does."""
        for digest, place in self._places.items():
            yield digest.hex(), self._read(digest.hex(), place)

    def _read(self, digest: str, place: _Place) -> bytes:
        if place.offset + place.length > self.bytes:
            raise EntryCorrupt(digest, "the file is cut short")
        # Opened again: a mapping of a file that is then cut short would end the process.
        descriptor = _descriptor(self.path)
        try:
            part = os.pread(descriptor, place.length, place.offset)
        finally:
            os.close(descriptor)
        if sha256(part).digest() != place.seal:
            raise EntryCorrupt(digest, "its bytes differ from those that were written")
        return part


class PrebuiltTier:
    """Look parts up for the threads of one process. Opens nothing before the first look-up."""

    def __init__(self, path: str | None, tally: Tally) -> None:
        self._path = path
        self._tally = tally
        self._lock = threading.RLock()
        self._file: PrebuiltFile | None = None
        self._has_opened = False
        self._read: dict[str, bytes | None] = {}
        self._has_warned = False

    def is_there(self) -> bool:
        """Return whether there is a sound file."""
        return self._opened() is not None

    def get(self, key: Key) -> bytes | None:
        """Return the part of a key, or None. What was read stays in memory: a few hundred small parts serve all entries."""
        file = self._opened()
        if file is None or key not in file:
            return None
        digest = key.digest
        if digest not in self._read:
            part = None
            try:
                part = file.read(key)
            except (OSError, EntryCorrupt) as error:
                self._refuse("corrupt", str(error))
            self._read[digest] = part
        return self._read[digest]

    def _opened(self) -> PrebuiltFile | None:
        if not self._has_opened:
            with self._lock:
                if not self._has_opened:
                    self._open()
                    self._has_opened = True
        return self._file

    def _open(self) -> None:
        if self._path is None:
            return
        try:
            self._file = PrebuiltFile(self._path)
        except FileNotFoundError:
            pass  # most packages have none
        except PathRefused as error:
            self._refuse("forged", error.reason)
        except (OSError, EntryCorrupt) as error:
            self._refuse("corrupt", str(error))

    def _refuse(self, counter: str, reason: str) -> None:
        self._tally.add(counter)
        if not self._has_warned:
            self._has_warned = True
            text = (
                f"prebuilt kernels in {self._path} are not used: {reason}; make them again, or set POOLRT_PREBUILT=none"
            )
            warnings.warn(text, PrebuiltRefused, stacklevel=2)


def _descriptor(path: str) -> int:
    # Without O_NONBLOCK, opening a pipe without a writer would hang.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise EntryCorrupt("", "not a regular file")


def _check_trust(path: str, status: os.stat_result) -> None:
    """Raise PathRefused if a user could change the file who could not change the code, or what is this user's own."""
    owners, writable = {0, os.geteuid()}, status.st_mode & _WRITABLE
    if os.path.dirname(path) == _FOLDER:
        code = os.stat(__file__)
        owners.add(code.st_uid)
        if code.st_gid == status.st_gid:
            writable &= ~(code.st_mode & stat.S_IWGRP)
    else:
        check_folder(os.path.dirname(path))
    if status.st_uid not in owners:
        raise PathRefused(path, f"it belongs to user {status.st_uid}")
    if writable:
        raise PathRefused(path, f"its mode {stat.S_IMODE(status.st_mode):04o} lets others write to it")
