"""Slots for the long results of functions, leased to the client that called.

The client is told before the worker that writes the result: after the exit of either, each slot has an owner that knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from poolrt.memory.arena import ArenaExhausted
from poolrt.workers.ipc.channel import MalformedMessage
from poolrt.workers.ipc.protocol import NUMBERS_LIMIT, Kind

from .instructions import Instruction, Send
from .leases import Leases

if TYPE_CHECKING:
    from .call_ring import CallRing

#: Slots that one client may hold if it asks for more: releasing this many takes some 0.1 s.
SLOTS_LIMIT: Final = 65_536


class ResultRooms:
    """Answers the requests of workers for room."""

    def __init__(self, workers: Mapping[int, Any], leases: Leases, out: list[Instruction]) -> None:
        self._workers = workers
        self._leases = leases
        self._out = out

    def take(self, worker: int, ring: CallRing | None, request: int, sizes: list[int]) -> None:
        """Lease slots for the result of a call on a ring, or of a job whose token is ``request``. Raises MalformedMessage."""
        client = 0
        if ring is None:
            job = self._workers[worker].jobs.get(request)
            if job is None or job.kind is not Kind.APPLY:
                raise MalformedMessage(f"a worker wants room for job {request}, which is no function that it was given")
            client, request = (0 if job.left else job.client), job.request
            job.has_room = True
        elif not ring.left:
            client = ring.client
        offsets: list[int] = []
        holder = ("client", client)
        if client and len(sizes) <= NUMBERS_LIMIT and self._leases.count(holder) + len(sizes) <= SLOTS_LIMIT:
            try:
                offsets = self._leases.take(sizes, holder)
            except ArenaExhausted:
                pass
        if offsets:
            self._out.append(Send(client, [Kind.RESULT_ROOM, request, offsets]))
        self._out.append(Send(worker, [Kind.ROOM_TAKEN, offsets]))
