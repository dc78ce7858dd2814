"""Outlined payloads: arguments or a result whose long parts are in the arena. The payload has a pickle, and a table of them.

A payload without a table is a pickle, which begins with another byte. The table names *slots* that the sender has a lease on,
then *buffers*: pieces of these slots, of the arena in place, or, in a result, of a buffer of the arguments. A long pickle is
itself the last buffer.

Guarantees: `parse_outlined` raises nothing but `MalformedPayload`, and all that it returns is inside of the arena or of the
buffers of the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

#: Buffers from this size on, in bytes, travel beside the pickle; shorter ones are in it.
LONG: Final = 12 * 1024
#: Sources of a buffer that is no piece of a slot: one that is in the arena already, and, counting down, those of the arguments.
IN_PLACE: Final = -1
ARGUMENT: Final = -2
#: Buffers of one payload; a table stays far below the longest message.
BUFFERS_LIMIT: Final = 32 * 1024
#: Buffers from this size on, in bytes, have a slot of their own, so that each is released by itself; at most so many.
_ALONE: Final = 1 << 20
_SLOTS: Final = 256
#: Buffers in one slot begin at multiples of a cache line.
_LINE: Final = 64
_MARK: Final = b"\0"
_HEAD: Final = Struct("<B?HI")
_SLOT: Final = Struct("<QQ")
_BUFFER: Final = Struct("<qQQ")


class MalformedPayload(ValueError):
    """The table of a payload names something that its sender cannot have."""


class Slot(NamedTuple):
    """A slot: where it begins in the arena, and the bytes of it that are used."""

    offset: int
    nbytes: int


class Place(NamedTuple):
    """A buffer: from ``start`` on in slot ``source``, in the arena (`IN_PLACE`), or in buffer i of arguments (`ARGUMENT` - i)."""

    source: int
    start: int
    nbytes: int


class Outlined(NamedTuple):
    """A parsed payload. ``data`` is the pickle, None if it is the last buffer."""

    slots: list[Slot]
    places: list[Place]
    data: memoryview | None


def is_outlined(payload: bytes | memoryview) -> bool:
    """Return whether a payload has a table."""
    return payload[:1] == _MARK


def lay_out(sizes: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the bytes of slots for buffers of ``sizes``, and the slot and start of each buffer."""
    slots: list[int] = []
    places: list[tuple[int, int]] = []
    shared = -1
    for nbytes in sizes:
        if nbytes >= _ALONE and len(slots) < _SLOTS:
            places.append((len(slots), 0))
            slots.append(nbytes)
            continue
        if shared < 0:
            shared = len(slots)
            slots.append(0)
        start = -(-slots[shared] // _LINE) * _LINE
        places.append((shared, start))
        slots[shared] = start + nbytes
    return slots, places


def pack_outlined(slots: Sequence[Slot], places: Sequence[Place], data: bytes | None) -> bytes:
    """Return a payload; without ``data`` the last buffer is the pickle."""
    parts = [_HEAD.pack(0, data is None, len(slots), len(places))]
    parts += [_SLOT.pack(*slot) for slot in slots]
    parts += [_BUFFER.pack(*place) for place in places]
    return b"".join((*parts, data or b""))


def parse_outlined(payload: bytes, arena_bytes: int, arguments: Sequence[int] = ()) -> Outlined:
    """Return what a payload has, for an arena of ``arena_bytes``; ``arguments`` are the bytes of the buffers of the arguments.

    Raises MalformedPayload.
    """
    view = memoryview(payload)
    if len(view) < _HEAD.size:
        raise MalformedPayload("a payload ends in its head")
    _, aside, slot_count, count = _HEAD.unpack_from(view)
    begin = _HEAD.size + slot_count * _SLOT.size
    end = begin + count * _BUFFER.size
    if slot_count > _SLOTS + 1 or count > BUFFERS_LIMIT or end > len(view) or (aside and not count):
        raise MalformedPayload(f"a payload of {len(view)} bytes cannot have {slot_count} slots and {count} buffers")
    slots = [Slot(*fields) for fields in _SLOT.iter_unpack(view[_HEAD.size : begin])]
    for slot in slots:
        if slot.offset + slot.nbytes > arena_bytes:
            raise MalformedPayload(
                f"{slot.nbytes} bytes at {slot.offset} are outside of an arena of {arena_bytes} bytes"
            )
    places = [Place(*fields) for fields in _BUFFER.iter_unpack(view[begin:end])]
    for source, start, nbytes in places:
        if source >= 0:
            room = slots[source].nbytes if source < slot_count else -1
        elif source == IN_PLACE:
            room = arena_bytes
        else:
            room = arguments[ARGUMENT - source] if ARGUMENT - source < len(arguments) else -1
        if start + nbytes > room:
            raise MalformedPayload(f"a buffer of {nbytes} bytes at {start} of source {source} is outside of it")
    return Outlined(slots, places, None if aside else view[end:])
