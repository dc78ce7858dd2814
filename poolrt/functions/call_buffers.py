"""The long arguments of one call in a client: buffers in the arena, beside a pickle (`outlined_payload`).

They are copied once, into slots that are kept for later calls, or named in place if they are in the arena already. They belong
to the call until it has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pickle import PickleBuffer
from typing import Any, Protocol, TypeAlias

from poolrt.workers.ipc.call_ring import INLINE_BYTES
from poolrt.workers.ipc.outlined_payload import (
    ARGUMENT,
    IN_PLACE,
    Place,
    Slot,
    lay_out,
    pack_outlined,
)
from poolrt.workers.processes.outlined_buffers import OutlinedBuffers, address_of_buffer, size_of, write_buffer
from poolrt.workers.processes.placed_arrays import Held


class Memory(Protocol):
    """What calls use of a connection's arena."""

    @property
    def nbytes(self) -> int: ...

    def take(self, sizes: Sequence[int]) -> list[int]: ...

    def give(self, offset: int, nbytes: int) -> None: ...

    def release(self, offset: int) -> None: ...

    def room(self, offset: int, nbytes: int) -> memoryview: ...

    def find(self, address: int, nbytes: int) -> int: ...

    def array(self, offset: int, shape: Sequence[int], dtype: str, *, keep: bool = False) -> Any: ...


class CallBuffers:
    """The buffers of one call's arguments, and their `payload`. `end` is called once no worker reads them any more."""

    __slots__ = ("_ended", "_held", "_memory", "_places", "_slots", "payload", "used")

    #: As `PlacedBuffers` has them.
    args: tuple[Any, ...] = ()

    def __init__(self, memory: Memory, ended: Callable[[int], object] | None) -> None:
        self._memory = memory
        #: Called with the bytes of slots at the end.
        self._ended = ended
        #: Slots that this call has leases on: offset, and bytes for which each was taken; None for one that a result has now.
        self._slots: list[tuple[int, int] | None] = []
        self._places: list[Place] = []
        #: Buffers in place, by the number of the buffer. Their memory lasts as long as they do.
        self._held: dict[int, Any] = {}
        self.payload = b""
        #: Bytes of slots.
        self.used = 0

    def fill(self, buffers: OutlinedBuffers, data: bytes) -> None:
        """Copy buffers and a long pickle into slots, and make the payload. Raises ArenaFull."""
        memory = self._memory
        places: list[Place | None] = []
        new: list[int] = []
        for number, found in enumerate(buffers.found):
            nbytes = size_of(found)
            offset = memory.find(address_of_buffer(found), nbytes)
            places.append(None if offset < 0 else Place(IN_PLACE, offset, nbytes))
            if offset < 0:
                new.append(nbytes)
            else:
                self._held[number] = found
        aside = len(data) > INLINE_BYTES
        if not new and not aside:
            self._places = [place for place in places if place is not None]
            self.payload = pack_outlined((), self._places, data)
            return
        if aside:
            places.append(None)
            new.append(len(data))
        sizes, at = lay_out(new)
        offsets = memory.take(sizes)
        self._slots = [*zip(offsets, sizes, strict=True)]
        self.used = sum(sizes)
        rest = iter(at)
        for number, place in enumerate(places):
            if place is None:
                slot, start = next(rest)
                found = buffers.found[number] if number < len(buffers.found) else None
                place = Place(slot, start, len(data) if found is None else size_of(found))
                room = memory.room(offsets[slot] + start, place.nbytes)
                if found is None:
                    room[:] = data
                else:
                    write_buffer(found, room)
            self._places.append(place)
        slots = [Slot(*slot) for slot in zip(offsets, sizes, strict=True)]
        self.payload = pack_outlined(slots, self._places, None if aside else data)

    def end(self) -> None:
        """Keep the slots for later calls, and refer to no array any more. May be repeated."""
        slots, self._slots = self._slots, []
        ended, self._ended = self._ended, None
        self._held = {}
        if ended is not None:
            ended(self.used)
        for slot in slots:
            if slot is not None:
                self._memory.give(*slot)

    def __del__(self) -> None:
        # An interrupt has ended the submission, before the first lines perhaps, or it was refused. A finalizer takes no lock, so
        # no slot is kept.
        for slot in getattr(self, "_slots", ()):
            if slot is not None:
                self._memory.release(slot[0])
        ended = getattr(self, "_ended", None)
        if ended is not None:
            ended(getattr(self, "used", 0))

    def sizes(self) -> Sequence[int]:
        """Return the bytes of the buffers."""
        return [place.nbytes for place in self._places]

    def views(self, wanted: Sequence[Place]) -> list[Any]:
        """Return the memory of pieces of these buffers for a result, in order.

        It is writable if nothing else refers to it: a slot that was copied to, and that one array of the result is in.
        """
        slots = [self._places[ARGUMENT - place.source].source for place in wanted]
        bases: dict[int, Any] = {}
        found: list[Any] = []
        for place, number in zip(wanted, slots, strict=True):
            buffer = ARGUMENT - place.source
            if number == IN_PLACE:
                view, start = _view_of(self._held[buffer]), 0
            else:
                if number not in bases:
                    bases[number] = self._adopt(number)
                view = memoryview(bases[number])
                start = self._places[buffer].start
                if slots.count(number) > 1:
                    view = view.toreadonly()
            start += place.start
            found.append(view[start : start + place.nbytes])
        return found

    def _adopt(self, number: int) -> Any:
        """Return the bytes of a slot as an array that owns it from now on."""
        slot = self._slots[number]
        if slot is None:
            raise RuntimeError("the result of a call was loaded twice")
        self._slots[number] = None
        return self._memory.array(slot[0], (slot[1],), "uint8", keep=True)


class PlacedBuffers:
    """The buffers of arguments that `pack_placed` has packed: arrays of the arena, which last as long as this refers to them."""

    __slots__ = ("_held", "args")

    payload = b""
    used = 0

    def __init__(self, args: tuple[Any, ...], held: list[Held]) -> None:
        #: The arguments, until the end.
        self.args = args
        self._held = held

    def end(self) -> None:
        """Refer to no array any more. May be repeated."""
        self.args = ()
        self._held = []

    def sizes(self) -> Sequence[int]:
        """Return the bytes of the buffers."""
        return [each.place.nbytes for each in self._held]

    def views(self, wanted: Sequence[Place]) -> list[Any]:
        """Return the memory of pieces of these buffers for a result, in order; nothing may be written there."""
        found: list[Any] = []
        for source, start, nbytes in wanted:
            found.append(_view_of(self._held[ARGUMENT - source].array)[start : start + nbytes])
        return found


#: The buffers of a call's arguments, however they were packed.
SentBuffers: TypeAlias = CallBuffers | PlacedBuffers


def _view_of(held: Any) -> memoryview:
    """Return the bytes of a buffer that the caller of a function has."""
    return (held if type(held) is PickleBuffer else PickleBuffer(held)).raw().toreadonly()
