"""Bytes at rest: one signed, self-describing entry.

    prefix   magic "PLRE", format version, kind, key id (8), lengths of header, key and payload, CRC-32 of all these
    header   fence, created, seconds (8 each), length of the creator's name (2), creator, toolchain
    key      the full canonical key
    payload
    tag      HMAC-SHA256 over everything above, with a key derived for entries of this namespace

Guarantees: nothing but the fixed prefix is read before the tag has been checked, and the full key is compared by the
caller's `unpack(..., key)`, so a value can be moved neither to another key nor to another namespace.

Corrupt or forged: the prefix has its own check sum, so a flipped byte anywhere in it, the key id included, is
*corrupt*. Only an intact prefix that names another signing key is *forged*. Under our own key id every failure is
*corrupt*: an attacker without the key who copies our id can do no better than a damaged disk.
"""

from __future__ import annotations

import math
import struct
from binascii import crc32
from typing import Final

from .deferred_namedtuple import NamedTuple
from .digests import sha256
from .errors import EntryCorrupt, EntryForged
from .key import Key
from .signing import KEY_ID_SIZE, TAG_SIZE, SigningKey

_MAGIC: Final = b"PLRE"
_FORMAT: Final = 2
#: magic, format version, kind, key id, lengths of header, key and payload; its CRC-32 follows.
_PREFIX: Final = struct.Struct(f">4sBB{KEY_ID_SIZE}sIIQ")
_CRC: Final = struct.Struct(">I")
_BODY: Final = _PREFIX.size + _CRC.size
#: fence, created, seconds, length of the creator's name; the names follow.
_HEADER: Final = struct.Struct(">QddH")

#: Kinds of signed messages; a failure or a result (see `results`) can never be taken for a value.
VALUE: Final = 1
FAILURE: Final = 2
RESULT: Final = 3


class EntryMeta(NamedTuple):
    """The origin of an entry.

    `fence` orders results of one key (0: made without Redis), `created` is seconds since the epoch, `seconds` the
    time of the creation, `creator` the host's name, `toolchain` the compilers and libraries that made it.
    """

    fence: int
    created: float
    seconds: float
    creator: str
    toolchain: str


class Entry(NamedTuple):
    """One verified entry."""

    meta: EntryMeta
    key: bytes
    payload: bytes


class EntryCodec:
    """Pack, sign, verify and unpack the entries of one namespace."""

    __slots__ = ("_key_id", "_signing")

    def __init__(self, signing: SigningKey, namespace: str) -> None:
        self._key_id = signing.id
        # The namespace is in the key, not in the message: an entry is then verified in place, without a copy.
        self._signing = signing.derive(b"entries of namespace " + namespace.encode())

    def pack(self, key: bytes, payload: bytes, meta: EntryMeta, kind: int = VALUE) -> bytes:
        """Return the signed entry of `payload` under the canonical key `key`."""
        creator = meta.creator.encode()
        fixed = _HEADER.pack(meta.fence, meta.created, meta.seconds, len(creator))
        header = b"".join((fixed, creator, meta.toolchain.encode()))
        prefix = _PREFIX.pack(_MAGIC, _FORMAT, kind, self._key_id, len(header), len(key), len(payload))
        message = b"".join((prefix, _CRC.pack(crc32(prefix)), header, key, payload))
        return message + self._signing.sign(message)

    def unpack(self, blob: bytes, digest: str = "", kind: int = VALUE) -> Entry:
        """Verify `blob` and return its entry.

        `digest` is the name it was stored under; when given, the entry's key must have it. Raises EntryCorrupt and
        EntryForged, as the module's docstring defines them.
        """
        entry = self._verified(blob, digest, kind)
        if digest and sha256(entry.key).hexdigest() != digest:
            raise EntryCorrupt(digest, "it belongs under another digest")
        try:
            Key.from_canonical(entry.key)
        except ValueError as error:
            raise EntryCorrupt(digest, f"its key is malformed: {error}") from None
        return entry

    def open(self, blob: bytes, key: Key, kind: int = VALUE) -> Entry | None:
        """Verify `blob` and return it if it is the entry of `key`; None for another key of the same digest."""
        entry = self._verified(blob, key.digest, kind)
        if entry.key == key.canonical:
            return entry
        if sha256(entry.key).hexdigest() != key.digest:
            raise EntryCorrupt(key.digest, "it belongs under another digest")
        return None

    def _verified(self, blob: bytes, digest: str, kind: int) -> Entry:
        """Return the entry in `blob`, of any key; `digest` is for messages only."""
        end = len(blob) - TAG_SIZE
        if end < _BODY:
            raise EntryCorrupt(digest, f"only {len(blob)} bytes")
        if not self._signing.matches(memoryview(blob)[:end], blob[end:]):
            raise self._refusal(blob, digest)
        magic, version, found, _, header_size, key_size, payload_size = _PREFIX.unpack_from(blob)
        key_start = _BODY + header_size
        payload_start = key_start + key_size
        if magic != _MAGIC or version != _FORMAT or payload_start + payload_size != end:
            raise EntryCorrupt(digest, "another format")
        if found != kind:
            raise EntryCorrupt(digest, "another kind of message")
        meta = _meta(blob[_BODY:key_start], digest)
        return Entry(meta, blob[key_start:payload_start], blob[payload_start:end])

    def _refusal(self, blob: bytes, digest: str) -> EntryCorrupt | EntryForged:
        """Return the error for an entry whose signature does not match, by its prefix."""
        prefix = blob[: _PREFIX.size]
        if _CRC.unpack_from(blob, _PREFIX.size)[0] != crc32(prefix):
            return EntryCorrupt(digest, "the prefix has a wrong check sum")
        magic, version, _, key_id, *sizes = _PREFIX.unpack(prefix)
        if magic != _MAGIC or version != _FORMAT:
            return EntryCorrupt(digest, "another format")
        if key_id != self._key_id:
            return EntryForged(digest, key_id.hex())
        if _BODY + sum(sizes) + TAG_SIZE != len(blob):
            return EntryCorrupt(digest, "the lengths do not add up")
        return EntryCorrupt(digest, "the signature does not match")


def _meta(header: bytes, digest: str) -> EntryMeta:
    """Return a header's fields. A genuine header can still come from a program with other fields."""
    try:
        fence, created, seconds, length = _HEADER.unpack_from(header)
        names = header[_HEADER.size :]
        if length > len(names) or not (math.isfinite(created) and math.isfinite(seconds)):
            raise ValueError("a field is out of range")
        return EntryMeta(fence, created, seconds, names[:length].decode(), names[length:].decode())
    except (ValueError, struct.error) as error:
        raise EntryCorrupt(digest, f"its header is malformed: {error}") from None
