"""Take the raw data of large initialisers out of a serialised model before protobuf parses it.

The parser would copy it twice, into the message and out of it, which takes longer than everything else. This module
reads only the framing (https://protobuf.dev/programming-guides/encoding); it leaves unusual bytes to the parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: Fields that are looked at; a message of more is left to the parser, which is faster.
MOST_FIELDS: Final = 1 << 18
#: Raw data of fewer bytes stays in the message.
LEAST_BYTES: Final = 4096

# Field numbers of onnx.proto.
_MODEL_GRAPH: Final = 7
_GRAPH_INITIALIZER: Final = 5
_TENSOR_RAW_DATA: Final = 9

_VARINT, _FIXED64, BYTES, _FIXED32 = 0, 1, 2, 5


class UnusualFraming(Exception):
    """The bytes are not framed as expected."""


def detach(model: memoryview) -> tuple[bytes | memoryview, dict[int, memoryview]]:
    """Return the model without the raw data of its large initialisers, and that data by the initialiser's number.

    The data are views into ``model``. A model that is malformed is returned as it is, with nothing detached.
    """
    try:
        return _model(model)
    except (UnusualFraming, IndexError):
        return model, {}


def _model(model: memoryview) -> tuple[bytes | memoryview, dict[int, memoryview]]:
    pieces: list[bytes | memoryview] = []
    detached: dict[int, memoryview] = {}
    graphs = 0
    for number, kind, start, value, end in read_fields(model):
        if number == _MODEL_GRAPH and kind == BYTES:
            graphs += 1
            pieces.append(_framed(number, _graph(model[value:end], detached)))
        else:
            pieces.append(model[start:end])
    # The parser merges all occurrences of a field that is repeated by mistake.
    return (b"".join(pieces), detached) if graphs == 1 and detached else (model, {})


def _graph(graph: memoryview, detached: dict[int, memoryview]) -> bytes:
    pieces: list[bytes | memoryview] = []
    initializers = 0
    for number, kind, start, value, end in read_fields(graph):
        piece: bytes | memoryview = graph[start:end]
        if number == _GRAPH_INITIALIZER and kind == BYTES:
            if end - value >= LEAST_BYTES:
                rest, raw = _tensor(graph[value:end])
                if raw is not None:
                    detached[initializers] = raw
                    piece = _framed(number, rest)
            initializers += 1
        pieces.append(piece)
    return b"".join(pieces)


def _tensor(tensor: memoryview) -> tuple[bytes, memoryview | None]:
    pieces: list[memoryview] = []
    raw: memoryview | None = None
    for number, kind, start, value, end in read_fields(tensor):
        if number == _TENSOR_RAW_DATA and kind == BYTES and end - value >= LEAST_BYTES:
            if raw is not None:
                raise UnusualFraming
            raw = tensor[value:end]
        else:
            pieces.append(tensor[start:end])
    return b"".join(pieces), raw


def read_fields(message: memoryview) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield the number and wire type of each field, and the positions of its start, of its value and of its end."""
    at, size = 0, len(message)
    for _ in range(MOST_FIELDS):
        if at >= size:
            return
        start = at
        tag, at = _varint(message, at)
        kind = tag & 7
        value = at
        if kind == _VARINT:
            _, at = _varint(message, at)
        elif kind == _FIXED64:
            at += 8
        elif kind == BYTES:
            length, value = _varint(message, at)
            at = value + length
        elif kind == _FIXED32:
            at += 4
        else:
            raise UnusualFraming
        if at > size:
            raise UnusualFraming
        yield tag >> 3, kind, start, value, at
    if at < size:
        raise UnusualFraming


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise UnusualFraming


def _framed(number: int, value: bytes) -> bytes:
    header = bytearray([number << 3 | BYTES])
    length = len(value)
    while length >= 0x80:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    header.append(length)
    return bytes(header) + value
