"""The rings of a pool: which client may run which models on which worker without this process, and what an exit leaves.

A ring (`poolrt.workers.ipc.ring`) connects one client and one worker. A client gets one to each worker once a model of its own
has had `GRANTED_AFTER` runs by messages. The client takes the slots of such runs from its own leases.

Guarantees: the slots of a client that has disconnected are released only when no worker serves a ring of it. The
message that a ring is lost follows the worker's exit, so the client may use the slots again then.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any, Final, Protocol

from poolrt.errors import RunFailed
from poolrt.workers.ipc.channel import Message
from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.ipc.ring import PAUSED, SLOTS_LIMIT

from .instructions import AttachRing, FindRingEnds, HangUp, Instruction, Send
from .jobs import Model
from .ring import LostRing, Ring
from .ring_order import RingOrder

#: Runs of a model by messages before it gets rings: they cost a mapping, and the model in each worker.
GRANTED_AFTER: Final = 4
#: The messages of workers about rings.
RING_KINDS: Final = frozenset((Kind.ALLOWED, Kind.DETACHED, Kind.RING_BROKEN, Kind.RING_RAISED))
#: Rings that were lost, of which a client may still send a run again.
_LOST_KEPT: Final = 256


class Serving(Protocol):
    """The properties of a worker that rings use."""

    number: int
    ready: bool
    doomed: bool
    applying: bool
    runs: int

    @property
    def calling(self) -> bool: ...


class Rings:
    """Grants and ends rings. ``send_model(worker, model)`` sends a model that a worker lacks.

    ``ordered`` has the clients whose runs go by messages, in the order of their priorities.
    ``left(client)`` is called when the last ring of a client that has disconnected is served no more.
    """

    def __init__(
        self,
        workers: dict[int, Any],
        numbers: Iterator[int],
        out: list[Instruction],
        send_model: Callable[[Any, Model], None],
        ordered: Container[int],
    ) -> None:
        self._workers = workers
        self._numbers = numbers
        self._out = out
        self._send_model = send_model
        self.left: Callable[[int], None] = lambda client: None
        self._rings: dict[int, Ring] = {}
        #: Models that clients may run on rings, by client and number.
        self._models: dict[int, dict[int, Model]] = {}
        self._ordered: Final = ordered
        self._order = RingOrder[Ring](Kind.RING_FIRST, workers, out, ordered)
        self._lost: dict[int, LostRing] = {}
        #: The entry of the compiled ends, empty before it comes; whether it was asked for; the peers that have it.
        self._ends = b""
        self._asked = False
        #: How often they could be neither found nor created.
        self.ends_failed = 0
        self._told: set[int] = set()

    def set_ends(self, entry: bytes) -> None:
        """Send clients and workers the compiled ends of rings. Without them, they go on in Python."""
        self._ends = entry
        for ring in self._rings.values():
            self._tell(ring)

    def count_run(self, model: Model) -> None:
        """Count a run by messages, and grant rings after some."""
        model.runs += 1
        if model.client in self._ordered:
            return
        if model.runs != GRANTED_AFTER or len(model.input_sizes) + len(model.output_sizes) > SLOTS_LIMIT:
            return
        self._models.setdefault(model.client, {})[model.number] = model
        for worker in self._order.sort(self._workers.values()):
            self._grant(worker, model)

    def note_allowed(self, worker: int, number: int, model: int) -> None:
        """Let a client know that a worker accepts a model on a ring. It would be disconnected if it were sooner."""
        ring = self.find(worker, number)
        known = self._models.get(ring.client, {}).get(model) if ring is not None else None
        if ring is not None and known is not None and known.wanted:
            self._out.append(Send(ring.client, [Kind.RING_MODEL, number, model]))

    def handle(self, worker: int, kind: Kind, message: Message) -> None:
        """Handle a worker's message about a ring; one about a ring that has ended does nothing."""
        number = message[1]
        if kind is Kind.ALLOWED:
            self.note_allowed(worker, number, message[2])
        elif kind is Kind.RING_RAISED:
            self._send_error(worker, *message[1:])
        else:
            ring = self.end(worker, number)
            if ring is not None and kind is Kind.RING_BROKEN and not ring.left:
                self._out.append(HangUp(ring.client, message[2]))

    def add_worker(self, worker: Serving) -> None:
        """Grant rings to a worker that has started."""
        for models in self._models.values():
            for model in models.values():
                self._grant(worker, model)
        self._order.share()

    def drop_model(self, model: Model) -> None:
        """Grant nothing more for a model that its client has unloaded."""
        self._models.get(model.client, {}).pop(model.number, None)

    def withdraw(self, client: int) -> bool:
        """End the rings of a client that has disconnected; return whether a worker may still write to its slots."""
        self._models.pop(client, None)
        self._told.discard(client)
        self._order.withdraw(client)
        self._order.share()
        for ring in [ring for ring in self._rings.values() if ring.client == client]:
            ring.left = True
            self._out.append(Send(ring.worker, [Kind.DETACH, ring.number]))
            self._end_if_paused(ring)
        return self.has_rings(client)

    def end(self, worker: int, number: int) -> Ring | None:
        """Remove a ring that a worker serves no more; None if there is none."""
        ring = self.find(worker, number)
        if ring is None:
            return None
        del self._rings[number]
        self._count(ring)
        if ring.left:
            self._end_if_last(ring.client)
        else:
            self._order.remove(ring)
            self._note_lost(ring, "", overdue=False)
        return ring

    def find(self, worker: int, number: int) -> Ring | None:
        """Return a ring that a worker serves."""
        ring = self._rings.get(number)
        return ring if ring is not None and ring.worker == worker else None

    def reap(self, worker: int, ending: str, *, overdue: bool) -> None:
        """Remove the rings of a worker that has exited."""
        self._told.discard(worker)
        for ring in [ring for ring in self._rings.values() if ring.worker == worker]:
            del self._rings[ring.number]
            if ring.left:
                self._end_if_last(ring.client)
            else:
                self._order.remove(ring)
                self._note_lost(ring, ending, overdue=overdue)
        self._order.share()

    def take_lost(self, client: int, number: int) -> LostRing | None:
        """Return once why a client's ring was lost; None if it was not."""
        found = self._lost.get(number)
        return self._lost.pop(number) if found is not None and found.client == client else None

    def give_up(self, client: int, number: int, sequence: int) -> None:
        """Note that a client waits no longer for an entry that it has submitted on a ring."""
        ring = self._rings.get(number)
        if ring is not None and ring.client == client:
            ring.give_up(sequence)

    def note_held_up(self, client: int, number: int) -> None:
        """Note that a worker makes no progress on a client's ring, if that is so."""
        ring = self._rings.get(number)
        if ring is not None and ring.client == client and ring.waits:
            self._hold_up(ring)

    def find_held_up(self) -> set[int]:
        """Return the workers that are held up: they execute a long run, or are stopped."""
        return {ring.worker for ring in self._rings.values() if ring.is_held_up}

    def find_waiting(self, worker: int) -> Ring | None:
        """Return a ring with entries for a worker, None if there is none."""
        return next((ring for ring in self._rings.values() if ring.worker == worker and ring.waits), None)

    def model_named(self, client: int, number: int) -> str:
        """Return the name of a client's model, for errors."""
        model = self._models.get(client, {}).get(number)
        return model.name if model is not None else "a run"

    def find_busy(self, worker: int) -> Ring | None:
        """Return the ring of which a worker executes an entry, None if it does not."""
        return next((ring for ring in self._rings.values() if ring.worker == worker and ring.under_way), None)

    def describe(self, ring: Ring) -> tuple[Any, str]:
        """Return what a ring's worker executes: a value that is equal as long as it does, and a text."""
        view = ring.view
        taken = view.taken if view is not None else 0
        label = self.model_named(ring.client, view.model_of(taken)) if view is not None and taken else "a run"
        return (ring.number, taken), label

    def find_active(self) -> list[int]:
        """Return the clients that have submitted entries since the last call."""
        found = []
        for ring in self._rings.values():
            if ring.view is not None and ring.view.submitted != ring.seen:
                ring.seen = ring.view.submitted
                found.append(ring.client)
        return found

    def completed(self, worker: int) -> int:
        """Return how many entries a worker has executed on its present rings."""
        return sum(ring.completed for ring in self._rings.values() if ring.worker == worker)

    def tick(self) -> None:
        """End the rings of clients that have disconnected and whose worker calls a function; find workers that are held up.

        A client that has written counts which are its worker's is disconnected.
        """
        for ring in [*self._rings.values()]:
            if ring.left:
                self._end_if_paused(ring)
            elif ring.is_damaged:
                self._out.append(HangUp(ring.client, f"counts of ring {ring.number} that its worker has not written"))
            before, ring.ticked_at = ring.ticked_at, ring.progress if ring.waits else -1
            if before >= 0 and before == ring.ticked_at:
                self._hold_up(ring)

    @property
    def exist(self) -> bool:
        """Whether there are rings, on which clients submit entries without a message."""
        return bool(self._rings)

    @property
    def rest(self) -> bool:
        """Whether all entries of all rings are done, and no ring is about to end."""
        return not any(
            ring.left or (ring.view is not None and ring.view.submitted != ring.view.done)
            for ring in self._rings.values()
        )

    def has_rings(self, client: int) -> bool:
        """Return whether a worker serves a ring of a client."""
        return any(ring.client == client for ring in self._rings.values())

    def _grant(self, worker: Serving, model: Model) -> None:
        """Let a client run a model on a worker that can be used; make their ring first."""
        if not worker.ready or worker.doomed:
            return
        ring = self._order.find(model.client, worker.number)
        if ring is None:
            ring = Ring(next(self._numbers), model.client, worker.number)
            self._rings[ring.number] = ring
            self._order.add(ring)
            self._out.append(AttachRing(ring))
            self._tell(ring)
        self._send_model(worker, model)
        allowed = [Kind.ALLOW, ring.number, model.number, model.input_sizes, model.output_sizes]
        self._out.append(Send(worker.number, allowed))

    def _tell(self, ring: Ring) -> None:
        """Send the compiled ends to both sides of a ring; ask the store for them before the first one."""
        if not self._asked:
            self._asked = True
            self._out.append(FindRingEnds())
        for peer in (ring.worker, ring.client):
            if self._ends and peer not in self._told and not ring.left:
                self._told.add(peer)
                self._out.append(Send(peer, [Kind.RING_ENDS, self._ends]))

    def _send_error(
        self, worker: int, number: int, sequence: int, cause: str, text: str, log: str, raised: str
    ) -> None:
        """Send a client the error of an entry."""
        ring = self.find(worker, number)
        if ring is not None and not ring.left:
            error = RunFailed(f"{self.describe(ring)[1]}: {cause}: {text}", cause, log, *([raised] if raised else []))
            self._out.append(Send(ring.client, [Kind.RING_FAILED, number, sequence, error.to_wire()]))

    def _end_if_paused(self, ring: Ring) -> None:
        """End a ring whose worker calls a function: it has been sent DETACH, and takes no entry before it has read that."""
        view, worker = ring.view, self._workers.get(ring.worker)
        if (
            worker is not None
            and (worker.applying or worker.calling)
            and view is not None
            and view.state == PAUSED
            and not ring.under_way
        ):
            self.end(ring.worker, ring.number)

    def _hold_up(self, ring: Ring) -> None:
        """Note that a worker is held up. One that only sleeps, because its client has not rung, looks at its rings then."""
        if ring.held_at != ring.progress:
            ring.held_at = ring.progress
            if not ring.under_way:
                self._out.append(Send(ring.worker, [Kind.LOOK]))

    def _end_if_last(self, client: int) -> None:
        if not any(ring.client == client for ring in self._rings.values()):
            self.left(client)

    def _note_lost(self, ring: Ring, ending: str, *, overdue: bool) -> None:
        self._lost[ring.number] = LostRing(ring.client, ending, overdue)
        while len(self._lost) > _LOST_KEPT:
            del self._lost[next(iter(self._lost))]
        self._out.append(Send(ring.client, [Kind.RING_LOST, ring.number]))

    def _count(self, ring: Ring) -> None:
        worker = self._workers.get(ring.worker)
        if worker is not None:
            worker.runs += ring.completed
