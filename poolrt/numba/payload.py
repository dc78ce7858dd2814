"""The payload of an entry of this package: what it is, where its function stands in the source, and the compiler's bytes."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import msgpack

_FORMAT: Final = 1


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
    packed: bytes = msgpack.packb([_FORMAT, int(payload.kind), header.file, header.line, payload.body])
    return packed


def unpack_payload(packed: bytes) -> Payload:
    """Return a payload. Raises ValueError if the bytes are none."""
    try:
        number, kind, file, line, body = msgpack.unpackb(packed)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ValueError(f"not a payload of a function: {error}") from None
    if number != _FORMAT or not isinstance(file, str) or not isinstance(line, int) or not isinstance(body, bytes):
        raise ValueError("not a payload of a function: another format")
    return Payload(PayloadKind(kind), Header(file, line), body)
