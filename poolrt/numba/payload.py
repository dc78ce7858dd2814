"""The payload of an entry of this package: what it is, where its function stands in the source, and the compiler's bytes."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

#: Number of the format, kind, line, and number of bytes of the file's name, which follows, then the body. No msgpack: a
#: process that loads a function imports little else for it.
_HEAD: Final = struct.Struct("<BBqI")
_FORMAT: Final = 2


class PayloadKind(IntEnum):
    """What an overload is."""

    #: A compile result, as Numba serializes it.
    RESULT = 1
    #: Code with addresses of one process: each compiles it for itself.
    LOCAL = 2
    #: Positions of arguments that the function needs as literals; Numba then asks for another signature.
    LITERALS = 3
    #: A code library, as Numba serializes it.
    LIBRARY = 4


class Header(NamedTuple):
    """The file and the first line of the function where it was compiled."""

    file: str
    line: int


class Payload(NamedTuple):
    """One payload."""

    kind: PayloadKind
    header: Header
    body: bytes


def pack_payload(payload: Payload) -> bytes:
    """Return a payload as bytes."""
    header = payload.header
    file = header.file.encode("utf-8", "surrogatepass")
    return _HEAD.pack(_FORMAT, payload.kind, header.line, len(file)) + file + payload.body


def unpack_payload(packed: bytes) -> Payload:
    """Return a payload. Raises ValueError if the bytes are none."""
    if len(packed) < _HEAD.size:
        raise ValueError("not a payload of a function: too short")
    number, kind, line, size = _HEAD.unpack_from(packed)
    begin = _HEAD.size + size
    if number != _FORMAT or begin > len(packed):
        raise ValueError("not a payload of a function: another format")
    file = packed[_HEAD.size : begin].decode("utf-8", "surrogatepass")
    return Payload(PayloadKind(kind), Header(file, line), packed[begin:])
