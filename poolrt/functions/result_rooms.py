"""The long results of functions in a client: slots that the coordinator has leased to it, and arrays that are views of them.

A slot is released with the last array in it, or when the call has failed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from poolrt.cachestore.deferred_namedtuple import NamedTuple
from poolrt.workers.ipc.bounded_decoding import Payload
from poolrt.workers.ipc.outlined_payload import ARGUMENT, Outlined, is_outlined, parse_outlined

from .call_buffers import Memory, SentBuffers
from .outcomes import load_pickle


class ResultRooms:
    """The slots that the coordinator has leased to this client for results, until these are loaded. Takes a lock."""

    def __init__(self) -> None:
        #: Returns the arena; None once its connection is gone.
        self.memory: Callable[[], Memory | None] = lambda: None
        self._lock = threading.Lock()
        #: Slots by request; requests whose result was loaded before the message about its slots came.
        self._rooms: dict[int, list[int]] = {}
        self._early: set[int] = set()

    def note(self, request: int, offsets: list[int]) -> None:
        """Note the slots for the result of a request. The worker gets them after this message was sent, and uses all."""
        with self._lock:
            if request in self._early:
                self._early.discard(request)
            else:
                self._rooms[request] = offsets

    def drop(self, request: int) -> None:
        """Release the slots of a call that has failed, and whose worker has exited."""
        with self._lock:
            offsets = self._rooms.pop(request, ())
        memory = self.memory() if offsets else None
        if memory is not None:
            for offset in offsets:
                memory.release(offset)

    def open(self, data: bytes | Payload, request: int, sent: SentBuffers | None) -> Result:
        """Return a worker's payload with its buffers, once: their slots are released with the arrays in them."""
        payload = data if isinstance(data, bytes) else b"".join(data.pieces)
        if not is_outlined(payload):
            return Result(payload, [])
        memory = self.memory()
        if memory is None:
            raise RuntimeError("the pool that has the result is gone")
        parsed = parse_outlined(payload, memory.nbytes, sent.sizes() if sent is not None else ())
        if parsed.slots:
            with self._lock:
                if self._rooms.pop(request, None) is None:
                    self._early.add(request)
        buffers = _views(memory, parsed, sent)
        return Result(buffers.pop() if parsed.data is None else parsed.data, buffers)


class Result(NamedTuple):
    """A result: its pickle, and the buffers beside it."""

    data: bytes | memoryview
    buffers: list[Any]

    def load(self) -> object:
        """Return the value. Raises what loading raises."""
        return load_pickle(self.data, self.buffers)


def _views(memory: Memory, parsed: Outlined, sent: SentBuffers | None) -> list[Any]:
    """Return the memory of the buffers of a result."""
    bases = [memory.array(slot.offset, (slot.nbytes,), "uint8") for slot in parsed.slots]
    returned = [place for place in parsed.places if place.source <= ARGUMENT]
    own = iter(sent.views(returned) if sent is not None else ())
    found: list[Any] = []
    for source, start, nbytes in parsed.places:
        if source < 0:
            found.append(next(own))
        else:
            found.append(memoryview(bases[source])[start : start + nbytes])
    return found
