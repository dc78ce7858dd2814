"""The key that signs entries, and the file it lives in.

Write access to cached machine code is code execution, so every entry is signed with a key that only the user (or the
operator, for many nodes) has. The file is made on first use, atomically and with mode 0600: of several processes that
start at once, one makes it and all read the same bytes.

A key that could be guessed, or exchanged by another user, is refused. So is a link, which may lead to a file whose
content is known, and a file in a folder that `ownership` refuses.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from .digests import LONG, compare_digest, openssl_sha256, sha256
from .errors import KeyFileNotMade, KeyFileRefused, PathRefused
from .folders import make_folder
from .ownership import check_folder

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

#: Random bytes in a new key; written as hexadecimal text.
_NEW_KEY_BYTES: Final = 32
#: Shortest and longest key material, in bytes, that is accepted from a file.
_MIN_MATERIAL: Final = 16
_MAX_MATERIAL: Final = 4096
#: Least number of different bytes in a key, and of different steps from one byte to the next. 16 random bytes have 15
#: or 16 of each, 32 random hexadecimal digits 14; one key of 32 digits in 26 million has fewer than 8.
_LEAST_VARIETY: Final = 8

#: Bytes of a block of SHA-256, and the two tables that combine a key with HMAC's constants.
_BLOCK: Final = 64
_INNER_PAD: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD: Final = bytes(byte ^ 0x5C for byte in range(256))

#: What to do without a key where none may be made.
_NAME_ONE: Final = "copy the key of a host that creates entries there, or name it with POOLRT_KEY_FILE"

#: Bytes of a signature.
TAG_SIZE: Final = 32
#: Bytes of a key's public name.
KEY_ID_SIZE: Final = 8


class SigningKey:
    """Sign and check with HMAC-SHA256 (RFC 2104).

    `id` names the key in every entry without giving it away: the first 8 bytes of a labelled SHA-256 of the material.
    `fingerprint` names it in Redis (see `redis.schema`): 16 hexadecimal digits of a labelled signature.
    """

    __slots__ = ("_block", "_long", "_short", "fingerprint", "id")

    def __init__(self, material: bytes) -> None:
        if not _MIN_MATERIAL <= len(material) <= _MAX_MATERIAL:
            raise ValueError(f"a signing key has {_MIN_MATERIAL} to {_MAX_MATERIAL} bytes, not {len(material)}")
        self._block = (material if len(material) <= _BLOCK else sha256(material).digest()).ljust(_BLOCK, b"\0")
        #: For messages of up to `LONG` bytes, and for longer ones once there is one.
        self._short = self._begin(sha256)
        self._long: tuple[Hash, Hash] | None = None
        self.id: bytes = sha256(b"poolrt signing key id\0" + material).digest()[:KEY_ID_SIZE]
        self.fingerprint: str = self.sign(b"poolrt key fingerprint\0")[:KEY_ID_SIZE].hex()

    def derive(self, purpose: bytes) -> SigningKey:
        """Return the key for one purpose; its signatures are invalid for any other."""
        return SigningKey(self.sign(b"poolrt derived key\0" + purpose))

    def sign(self, message: bytes | memoryview) -> bytes:
        """Return the 32-byte tag of `message`."""
        begun = self._short
        if len(message) > LONG:
            begun = self._long = self._long or self._begin(openssl_sha256)
        inner, outer = begun[0].copy(), begun[1].copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()

    def matches(self, message: bytes | memoryview, tag: bytes | memoryview) -> bool:
        """Return in constant time whether `tag` is the tag of `message`."""
        return compare_digest(self.sign(message), tag)

    def _begin(self, new: Callable[[bytes], Hash]) -> tuple[Hash, Hash]:
        """Return both hashes with the key in them, as section 4 of the RFC suggests: a signature begins with copies."""
        return new(self._block.translate(_INNER_PAD)), new(self._block.translate(_OUTER_PAD))

    def __repr__(self) -> str:
        return f"<SigningKey {self.id.hex()}>"


def process_key() -> SigningKey:
    """Return a new key that only this process has."""
    return SigningKey(os.urandom(_NEW_KEY_BYTES))


def load_key(path: str, make: bool) -> SigningKey:
    """Read the signing key in `path`; with `make`, make the file first if there is none.

    The material is the file's content without one line end at its end. Raises KeyFileRefused when the file is missing
    (and `make` is false), is not a regular file of ours or root's, is a link, is open to group or others, is too short,
    too long or too regular, or is in a folder that another user can change; KeyFileNotMade when it cannot
    be made.
    """
    try:
        check_folder(os.path.dirname(path), sticky=True)
    except PathRefused as error:
        raise KeyFileRefused(path, f"its folder {error}") from None
    while True:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except FileNotFoundError:
            if not make:
                raise KeyFileRefused(path, f"there is no such file; {_NAME_ONE}") from None
            _make_key_file(path, os.urandom(_NEW_KEY_BYTES).hex().encode() + b"\n")
            continue
        except NotADirectoryError as error:
            raise KeyFileNotMade(path, f"it cannot be made: {error.strerror}") from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise KeyFileRefused(path, "it is a symbolic link; name the file itself, or remove the link") from None
            raise KeyFileRefused(path, error.strerror or str(error)) from error
        try:
            _check_file(path, os.fstat(descriptor))
            content = os.read(descriptor, _MAX_MATERIAL + 3)
        finally:
            os.close(descriptor)
        material = content[:-2] if content.endswith(b"\r\n") else content.removesuffix(b"\n")
        try:
            _check_variety(material)
            return SigningKey(material)
        except ValueError as error:
            raise KeyFileRefused(path, str(error)) from None


def _check_file(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyFileRefused(path, "it is not a regular file; name another one with POOLRT_KEY_FILE")
    if status.st_uid not in (os.geteuid(), 0):
        raise KeyFileRefused(path, f"it belongs to user {status.st_uid}, not to user {os.geteuid()} or root")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise KeyFileRefused(path, f"its mode {mode:04o} lets group or others in; run: chmod 600 {path}")


def _check_variety(material: bytes) -> None:
    """Raise ValueError for material without variety: few different bytes, a sequence such as 0123, or a repetition."""
    steps = {(after - before) % 256 for before, after in pairwise(material)}
    fewest = min(len(set(material)), len(steps))
    repeated = any(material.startswith(material[period:]) for period in range(1, len(material) // 2 + 1))
    if len(material) >= _MIN_MATERIAL and (fewest < _LEAST_VARIETY or repeated):
        raise ValueError(
            "its content could be guessed: it repeats itself, or has fewer than "
            f"{_LEAST_VARIETY} different bytes or steps between bytes; write 64 random hexadecimal digits there"
        )


def check_key(material: bytes) -> None:
    """Raise ValueError for what is no signing key: too short, too long, or easy to guess."""
    _check_variety(material)
    SigningKey(material)


def make_key_file(path: str, material: bytes) -> None:
    """Put a key at `path`, mode 0600, unless there is a file already. Raises what `check_key` raises, and KeyFileNotMade.

    The file has its whole content when its name appears.
    """
    check_key(material)
    _make_key_file(path, material + b"\n")


def _make_key_file(path: str, content: bytes) -> None:
    """Put a key at `path` unless another process did so first."""
    folder = os.path.dirname(os.path.abspath(path))
    draft = f"{path}.{os.urandom(8).hex()}"
    try:
        make_folder(folder)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, content)
            os.fsync(descriptor)
        except BaseException:
            os.unlink(draft)  # the disk is full
            raise
        finally:
            os.close(descriptor)
        try:
            # A link never replaces: the first process wins and the content is complete when the name appears.
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            os.unlink(draft)
    except OSError as error:
        raise KeyFileNotMade(path, f"it cannot be made: {error.strerror or error}") from error
