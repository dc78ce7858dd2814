"""The memory of one call of a function in a worker: the buffers of its arguments, and those of its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ipc.call_ring import INLINE_BYTES
from ..ipc.outlined_payload import ARGUMENT, Place, Slot, lay_out, pack_outlined, parse_outlined
from ..memory.first_writes import FirstWrites
from .argument_views import ArgumentViews
from .outlined_buffers import OutlinedBuffers, address_of_buffer, bytes_of, size_of, write_buffer
from .result_slots import ResultSlots


class CallMemory:
    """Reads the buffers of arguments, and writes those of results. One call at a time; `close` ends it."""

    def __init__(self, slots: ResultSlots, arena_fd: int) -> None:
        self._slots = slots
        self._views = ArgumentViews(slots.arena, arena_fd)
        self._writes = FirstWrites(slots.arena, arena_fd)

    def open(self, payload: bytes) -> tuple[bytes | memoryview, list[Any]]:
        """Return the pickle of outlined arguments, and the buffers beside it. Raises MalformedPayload."""
        parsed = parse_outlined(payload, self._slots.arena.nbytes)
        if parsed.data is not None:
            return parsed.data, self._views.open(parsed)
        # The pickle is read once, at once, where it is.
        last = parsed.places.pop()
        buffers = self._views.open(parsed)
        offset = last.start + (parsed.slots[last.source].offset if last.source >= 0 else 0)
        return memoryview(self._slots.arena.buffer(offset, last.nbytes)).cast("B"), buffers

    def open_places(self, places: tuple[Place, ...]) -> Sequence[Any]:
        """Return the memory of buffers of arguments that are in the arena already. Raises ValueError for others."""
        return self._views.open_places(places)

    def close(self) -> None:
        """End a call whose arguments and result nothing here refers to any more."""
        self._views.close()

    def pack(self, pickled: Callable[[OutlinedBuffers | None], bytes], limit: int) -> bytes:
        """Return the payload of a result that ``pickled`` pickles. Without free memory it is a pickle up to ``limit`` bytes.

        Raises ValueError for a longer one.
        """
        found = OutlinedBuffers()
        data = pickled(found)
        if not found.found and len(data) <= INLINE_BYTES:
            return data
        places: list[Place | None] = []
        new: list[int] = []
        for each in found.found:
            nbytes = size_of(each)
            own = self._views.find(address, nbytes) if (address := address_of_buffer(each)) else None
            places.append(None if own is None else Place(ARGUMENT - own[0], own[1], nbytes))
            if own is None:
                new.append(nbytes)
        aside = len(data) > INLINE_BYTES
        if aside:
            new.append(len(data))
            places.append(None)
        sizes, at = lay_out(new)
        total = sum(sizes)
        offsets: list[int] | None = []
        if sizes:
            fits = total <= self._slots.arena.nbytes
            offsets = self._slots.take(sizes, wait=total > limit) if fits else None
        if offsets is None:
            data = pickled(None) if found.found else data
            if len(data) > limit:
                raise ValueError(
                    f"the function returned {len(data)} bytes, more than {limit} that messages have, and the arena of "
                    f"{self._slots.arena.nbytes} bytes has no room: raise the setting arena_bytes (POOLRT_ARENA_BYTES), return "
                    "less, or use a graph"
                )
            return data
        rest = iter(at)
        written: list[Place] = []
        for number, place in enumerate(places):
            if place is None:
                slot, start = next(rest)
                each = found.found[number] if number < len(found.found) else None
                nbytes = len(data) if each is None else size_of(each)
                offset = offsets[slot] + start
                room = memoryview(self._slots.arena.buffer(offset, nbytes)).cast("B")
                if each is None:
                    room[:] = data
                elif not (address_of_buffer(each) and self._writes.write_new(bytes_of(each), offset)):
                    self._writes.prepare(offset, nbytes)
                    write_buffer(each, room)
                place = Place(slot, start, nbytes)
            written.append(place)
        slots = [Slot(offset, size) for offset, size in zip(offsets, sizes, strict=True)]
        return pack_outlined(slots, written, None if aside else data)
