"""Bounds on what a message makes when it is decoded: its items are counted in its bytes, before any object exists.

A byte of msgpack can stand for an object of 56 bytes, and five bytes announce an array of any length, which the decoder
allocates at once. Depth needs a bound too, because each level allocates what it announces.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgpack

#: Levels of arrays and maps within each other.
DEPTH_LIMIT: Final = 16
#: Bytes that are decoded at a time. The decoder holds the interpreter's lock for about 0.1 ms with so many.
_PIECE: Final = 8 * 1024


class Payload:
    """The bytes of a message's last field in the pieces that arrived, so that forwarding copies none of them."""

    __slots__ = ("nbytes", "pieces")

    def __init__(self, pieces: list[memoryview], nbytes: int) -> None:
        self.pieces = pieces
        self.nbytes = nbytes

    def __len__(self) -> int:
        return self.nbytes


class Truncated(ValueError):
    """The bytes end before the items do."""

    def __str__(self) -> str:
        return "the message is truncated"


def _item_sizes() -> list[int]:
    """Return the bytes of an item by its first byte; 0 for one whose size or items follow, -1 for none of ours."""
    sizes = [1] * 128 + [0] * 32 + [1 + length for length in range(32)] + [-1] * 32 + [1] * 32
    for byte in (0xC0, 0xC2, 0xC3):
        sizes[byte] = 1
    for byte, size in zip(range(0xCA, 0xD4), (5, 9, 2, 3, 5, 9, 2, 3, 5, 9), strict=True):
        sizes[byte] = size
    for byte in _LENGTHS:
        sizes[byte] = 0
    return sizes


#: First byte of an item -> bytes of the length that follows, and items for each unit of it, 0 if it counts bytes.
_LENGTHS: Final = {
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
    0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2),
}  # fmt: skip
_SIZES: Final = _item_sizes()


def skip_items(data: bytes | bytearray | memoryview, at: int, count: int, limit: int) -> int:
    """Return the position after ``count`` items from position ``at`` on, and all that they contain.

    Raises ValueError if there are more than ``limit`` items in all, or levels than `DEPTH_LIMIT`, or if the bytes end before.
    """
    seen, left, outer, sizes = count, count, list[int](), _SIZES
    try:
        while True:
            while not left:
                if not outer:
                    if at > len(data):
                        raise Truncated
                    return at
                left = outer.pop()
            left -= 1
            byte = data[at]
            size = sizes[byte]
            if size > 0:
                at += size
                continue
            if size < 0:
                raise ValueError(f"byte {byte:#x} begins no item of a message")
            if byte < 0xA0:
                at += 1
                inside = (byte & 15) * (2 if byte < 0x90 else 1)
            else:
                width, units = _LENGTHS[byte]
                inside = int.from_bytes(data[at + 1 : at + 1 + width], "big")
                at += 1 + width
                if not units:
                    at += inside
                    continue
                inside *= units
            seen += inside
            if seen > limit:
                raise ValueError(f"the message has more than {limit} items")
            if len(outer) >= DEPTH_LIMIT:
                raise ValueError(f"the message has more than {DEPTH_LIMIT} levels")
            outer.append(left)
            left = inside
    except IndexError:
        raise Truncated from None


def unpack_bounded(data: bytes | memoryview | Payload, limit: int, text_bytes: int) -> Any:
    """Return the value of a payload of at most ``limit`` items, whose texts have at most ``text_bytes`` bytes.

    Other threads run between two pieces of it. Raises ValueError.
    """
    pieces = data.pieces if isinstance(data, Payload) else [memoryview(data)]
    if len(pieces) > 1:
        try:
            skip_items(pieces[0], 0, 1, limit)  # before the pieces are joined, which takes a while if they are many
        except Truncated:
            pass
    whole = bytearray(sum(map(len, pieces)))
    at = 0
    for piece in pieces:
        whole[at : at + len(piece)] = piece
        at += len(piece)
    if skip_items(whole, 0, 1, limit) != len(whole):
        raise ValueError("bytes follow the end of the message")
    return _unpack(memoryview(whole), text_bytes)


def _unpack(data: memoryview, text_bytes: int) -> Any:
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(data)), max_str_len=text_bytes)
    for piece in _cut(data):
        unpacker.feed(piece)
        try:
            return unpacker.unpack()
        except msgpack.OutOfData:
            pass  # the next piece goes on
        except (TypeError, msgpack.UnpackException) as error:
            raise ValueError(f"not msgpack: {error}") from error
    raise ValueError("the message is truncated")


def _cut(data: memoryview) -> Iterable[memoryview]:
    return (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))


def find_last_field(first: bytes, limit: int) -> tuple[list[Any], int, int] | None:
    """Return the other fields of a message, and where the bytes of its last field begin in ``first`` and how many they are.

    None if the message is no short array that ends with bytes of 64 KiB or more. Raises ValueError if the other fields are
    malformed or have more than ``limit`` items.
    """
    if len(first) < 2 or not 0x92 <= first[0] <= 0x9F:
        return None
    count = first[0] & 15
    end = skip_items(first, 1, count - 1, limit)
    if len(first) < end + 5 or first[end] != 0xC6:
        return None
    fields: list[Any] = msgpack.unpackb(bytes([0x90 | (count - 1)]) + first[1:end])
    return fields, end + 5, int.from_bytes(first[end + 1 : end + 5], "big")
