"""The rings of calls: which client may call which functions on which worker without this process, and what an exit leaves.

A client asks for rings once it has called a function a few times. It gets one to each worker. A worker is sent a function
before the client may call it, as for calls by messages. What functions print, results that are too long for a ring, and errors
of loading come back here as messages, and are sent on to the client.

Guarantees: the message that a ring is lost follows the worker's exit. A client's slots are released only when no worker serves
a ring of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from poolrt.errors import WorkerLoss, unfit_error
from poolrt.workers.ipc.channel import MalformedMessage, Message
from poolrt.workers.ipc.gate import Gate
from poolrt.workers.ipc.protocol import Kind

from .call_ring import CallRing
from .functions import Function, Functions, Holder
from .instructions import AttachCalls, HangUp, Instruction, MakeGate, Send
from .leases import Leases
from .result_rooms import ResultRooms
from .ring_order import RingOrder

#: The messages of workers about rings of calls.
CALL_KINDS: Final = frozenset(
    (
        Kind.ADMITTED,
        Kind.DETACHED_CALLS,
        Kind.CALLS_BROKEN,
        Kind.CALL_PRINTED,
        Kind.CALL_RETURNED,
        Kind.CALL_THREW,
        Kind.CALL_UNFIT,
        Kind.FREE,
        Kind.ROOM,
    )
)


class Calling(Holder, Protocol):
    """The properties of a worker that rings of calls use."""

    ready: bool
    doomed: bool
    #: Whether its gate is made or asked for.
    has_gate: bool


class CallRings:
    """Grants and ends rings of calls. ``left(client)`` is called when the last ring of a client is gone that has disconnected."""

    def __init__(
        self,
        workers: dict[int, Any],
        numbers: Iterator[int],
        functions: Functions,
        leases: Leases,
        out: list[Instruction],
    ) -> None:
        self._workers = workers
        self._rooms = ResultRooms(workers, leases, out)
        self._numbers = numbers
        self._functions = functions
        self._out = out
        self.left: Callable[[int], None] = lambda client: None
        self._rings: dict[int, CallRing] = {}
        self._order = RingOrder[CallRing](Kind.CALL_RING_FIRST, workers, out)
        #: Functions that clients call on rings, by client and the client's number.
        self._called: dict[int, dict[int, Function]] = {}

    def grant(self, client: int, number: int) -> None:
        """Let a client call a function on a ring to each worker. Raises PoolRefused if it has no such function."""
        function = self._functions.find(client, number)
        if function is None:
            return
        self._called.setdefault(client, {})[number] = function
        for worker in self._order.sort(self._workers.values()):
            self._admit(worker, client, number, function)

    def discard(self, client: int, number: int) -> None:
        """Grant nothing more for a function that its client has discarded."""
        self._called.get(client, {}).pop(number, None)

    def add_worker(self, worker: Calling) -> None:
        """Grant rings to a worker that has started."""
        for client, functions in self._called.items():
            for number, function in functions.items():
                self._admit(worker, client, number, function)
        self._order.share()

    def handle(self, worker: int, kind: Kind, message: Message) -> None:
        """Handle a worker's message about a ring; one about a ring that has ended does nothing. Raises MalformedMessage."""
        if kind is Kind.FREE:
            return  # the worker may get a job now
        number, *fields = message[1:]
        ring = self._rings.get(number)
        if kind is Kind.ROOM and not number:
            self._rooms.take(worker, None, *fields)
            return
        if ring is None:
            return
        if ring.worker != worker:
            raise MalformedMessage(f"a worker names ring {number} of another one")
        if kind is Kind.ROOM:
            self._rooms.take(worker, ring, *fields)
        elif kind is Kind.ADMITTED:
            if fields[0] in self._called.get(ring.client, {}):
                self._out.append(Send(ring.client, [Kind.CALLABLE, number, fields[0]]))
        elif kind is Kind.DETACHED_CALLS or kind is Kind.CALLS_BROKEN:
            self.end(worker, number)
            if kind is Kind.CALLS_BROKEN and not ring.left:
                self._out.append(HangUp(ring.client, fields[0]))
        elif not ring.left:
            self._out.append(Send(ring.client, _answer(kind, fields)))

    def withdraw(self, client: int) -> bool:
        """End the rings of a client that has disconnected; return whether a worker may still use its slots."""
        self._called.pop(client, None)
        self._order.withdraw(client)
        self._order.share()
        found = [ring for ring in self._rings.values() if ring.client == client]
        for ring in found:
            ring.left = True
            self._out.append(Send(ring.worker, [Kind.DETACH_CALLS, ring.number]))
        return bool(found)

    def end(self, worker: int, number: int) -> None:
        """Remove a ring that a worker serves no more, if there is one: its client calls by messages."""
        ring = self._rings.get(number)
        if ring is not None and ring.worker == worker:
            self._remove(ring, "")

    def reap(self, worker: int, ending: str) -> None:
        """Remove the rings of a worker that has exited; ``ending`` is a clause for errors that says how."""
        for ring in [ring for ring in self._rings.values() if ring.worker == worker]:
            self._remove(ring, ending)
        self._order.share()

    def note_gate(self, worker: int, gate: Gate) -> None:
        """Note the gate of a worker."""
        if (found := self._workers.get(worker)) is not None:
            found.gate = gate
            if found.jobs:
                gate.close()

    def has_gate(self, worker: int) -> bool:
        """Return whether a worker has a gate."""
        found = self._workers.get(worker)
        return found is not None and found.gate is not None

    def has_rings(self, client: int) -> bool:
        """Return whether a worker serves a ring of a client."""
        return any(ring.client == client for ring in self._rings.values())

    def find_active(self) -> list[int]:
        """Return the clients that have submitted entries since the last call."""
        found = []
        for ring in self._rings.values():
            if ring.view is not None and ring.view.submitted != ring.seen:
                ring.seen = ring.view.submitted
                found.append(ring.client)
        return found

    def _admit(self, worker: Calling, client: int, number: int, function: Function) -> None:
        if not worker.ready or worker.doomed:
            return
        if not worker.has_gate:
            worker.has_gate = True
            self._out.append(MakeGate(worker.number))
        ring = self._order.find(client, worker.number)
        if ring is None:
            ring = CallRing(next(self._numbers), client, worker.number)
            self._rings[ring.number] = ring
            self._order.add(ring)
            self._out.append(AttachCalls(ring))
        self._functions.prepare(worker, client, function)
        self._out.append(Send(worker.number, [Kind.ADMIT, ring.number, number, function.number]))

    def _remove(self, ring: CallRing, ending: str) -> None:
        del self._rings[ring.number]
        if not ring.left:
            self._order.remove(ring)
            error = function_lost(ending)
            self._out.append(Send(ring.client, [Kind.CALLS_LOST, ring.number, error.to_wire()]))
        elif not self.has_rings(ring.client):
            self.left(ring.client)


def function_lost(ending: str) -> WorkerLoss:
    """Return the error of a function whose worker was lost while it called it."""
    text = "function: the worker process that executed it was lost; functions are not repeated"
    return WorkerLoss(text + ending.replace("the last one", "it"), "function", 0, 1)


def _answer(kind: Kind, fields: list[Any]) -> Message:
    """Return the client's message for a worker's."""
    if kind is Kind.CALL_PRINTED:
        return [Kind.TEXT, *fields]
    if kind is Kind.CALL_RETURNED:
        return [Kind.RETURNED, *fields]
    if kind is Kind.CALL_THREW:
        return [Kind.RAISED, *fields]
    return [Kind.FAILED, fields[0], unfit_error(*fields[1:]).to_wire()]
