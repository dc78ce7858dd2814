"""The rings that the coordinator has granted to a connection: which of them takes the next run of a model.

A run goes to the ring with the fewest entries in flight. If none takes it, or anything is unusual, it goes by messages. That
costs time only.
"""

from __future__ import annotations

import _socket
import os
import weakref
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from poolrt.errors import error_from_wire
from poolrt.workers.ipc.channel import Channel, MalformedMessage, Message
from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.ipc.ring import CAPACITY, DONE, SUBMITTED, SubmittingRing
from poolrt.workers.memory.arena_view import ArenaView

if TYPE_CHECKING:
    from poolrt.connection.client import Client
    from poolrt.workers.ipc.processors import Spin

    from .client_ring import ClientRing
    from .loaded_model import LoadedModel
    from .prepared_runs import PreparedRuns
    from .ring_ends import RingEnds
    from .ring_entry import RingEntry

#: Runs between looks at the coordinator's messages: waits that end soon never read them.
GLANCE: Final = 64
#: The kinds of messages that `RingRuns.accept` takes.
KINDS: Final = frozenset(
    (Kind.RING, Kind.RING_MODEL, Kind.RING_FIRST, Kind.RING_LOST, Kind.RING_FAILED, Kind.RING_ENDS)
)


class RingLost(Exception):
    """The worker of a ring has exited, and may have executed a part of an entry."""

    def __init__(self, ring: int) -> None:
        super().__init__(ring)
        self.ring = ring


class RingRuns:
    """The rings of one connection; waits spin for ``spin_us`` at most."""

    def __init__(self, spin_us: int = 0) -> None:
        self._rings: dict[int, ClientRing] = {}
        #: The same, for threads that read while another one changes them.
        self._all: tuple[ClientRing, ...] = ()
        #: What has prepared places on the rings.
        self.users: weakref.WeakSet[PreparedRuns] = weakref.WeakSet()
        self._spin_us = spin_us
        #: Of all rings, once there is one.
        self._spin: Spin | None = None
        self._ends: RingEnds | None = None
        self._begun = 0
        self._ordered = False

    def accept(self, message: Message, channel: Channel) -> None:
        """Handle a message about rings. The thread that reads the connection calls this."""
        kind, number = message[:2]
        if kind == Kind.RING_ENDS:
            self._take_ends(message[1])
            return
        if kind == Kind.RING:
            self._add(number, channel)
            return
        ring = self._rings.get(number)
        if ring is None:
            return
        if kind == Kind.RING_MODEL:
            if not self._ordered:
                ring.models.add(message[2])
                for each in [*self.users]:
                    if each.number == message[2]:
                        each.choose_again()
        elif kind == Kind.RING_FAILED:
            ring.errors[message[2]] = message[3]
        elif kind == Kind.RING_FIRST:
            self._rings = {number: ring, **self._rings}
            self._all = (*self._rings.values(),)
            for each in [*self.users]:
                each.choose_again()
        else:
            del self._rings[number]
            self._all = (*self._rings.values(),)
            ring.end()
            for each in [*self.users]:
                each.forget(ring)

    def keep_order(self) -> None:
        """Begin no further runs on rings, whose entries have one order: the coordinator has that of priorities."""
        self._ordered = True
        for ring in self._all:
            ring.models.clear()

    def is_glance_due(self) -> bool:
        """Return whether the caller, who begins a run, should look at messages: waits that end soon never read them."""
        self._begun += 1
        return not self._begun % GLANCE

    @property
    def all(self) -> tuple[ClientRing, ...]:
        """All rings."""
        return self._all

    def has_room(self, model: int) -> bool:
        """Return whether a ring probably takes a run of a model."""
        for ring in [*self._rings.values()]:  # noqa: SIM110 - an interrupt in the end of a generator is dropped
            if model in ring.models and ring.is_open():
                return True
        return False

    def find(self, model: int) -> ClientRing | None:
        """Return the ring that takes runs of a model and has the fewest in flight, None if there is none.

        One whose worker is held up is the last resort.
        """
        best: ClientRing | None = None
        held: ClientRing | None = None
        least = CAPACITY
        for ring in self._all:
            if model in ring.models:
                words = ring.words
                count = words[SUBMITTED] - words[DONE]  # its load, without a call
                if not count:
                    return ring
                if ring.held_at == words[DONE]:
                    held = held or ring
                elif count < least:
                    best, least = ring, count
        return best or held

    def count_rings(self, model: int) -> int:
        """Return how many rings take runs of a model."""
        count = 0
        for ring in self._all:
            count += model in ring.models
        return count

    def count_runs(self, loaded: LoadedModel) -> int:
        """Return how many `PlacedRuns` of a model are under way, as `ClientRing.count_runs` says."""
        return sum(ring.count_runs(loaded) for ring in self._all)

    def submit(self, entry: RingEntry) -> ClientRing | None:
        """Submit an entry on the ring with the fewest entries in flight; None if no ring takes it."""
        rings = [ring for ring in [*self._rings.values()] if entry.model in ring.models]
        if len(rings) > 1:
            rings.sort(key=attrgetter("load"))
        for ring in rings:
            if ring.submit(entry):
                return ring
        return None

    def close(self) -> None:
        """Close all rings. The connection has ended."""
        for ring in [*self._rings.values()]:
            ring.close()
        self._rings = {}
        self._all = ()

    def _take_ends(self, entry: bytes) -> None:
        """Submit and wait without the interpreter; with it, if this process cannot have the kernels."""
        from poolrt.workers.engines.object_loader import ObjectError
        from poolrt.workers.primitives.entry import MalformedEntry

        from .ring_ends import RingEnds

        try:
            self._ends = RingEnds(entry)
        except (MalformedEntry, ObjectError, OSError, IndexError):
            return
        for ring in [*self._rings.values()]:
            ring.take_ends(self._ends)

    def _add(self, number: int, channel: Channel) -> None:
        # Not before there is a ring: a first run goes by messages, and needs none of these modules.
        from poolrt.workers.ipc.processors import Spin

        from .client_ring import ClientRing

        try:
            memory, bell = channel.take_fd(), channel.take_fd()
        except MalformedMessage:
            return  # this process can have no more descriptors
        sock = _socket.socket(fileno=bell)
        try:
            view = ArenaView(memory)
        except OSError:
            sock.close()
            return
        finally:
            os.close(memory)
        ring = SubmittingRing(number, view.buffer(0, view.nbytes))
        self._spin = self._spin or Spin(self._spin_us)
        made = ClientRing(number, ring, view.address, sock, self._spin)
        if self._ends is not None:
            made.take_ends(self._ends)
        self._rings[number] = made
        self._all = (*self._rings.values(),)


def take_error(ring: ClientRing, sequence: int, client: Client) -> Exception | None:
    """Wait for the error of an entry that has failed and return it; None if it was lost with the worker."""
    client.wait_while(lambda: sequence not in ring.errors and not ring.lost)
    error: dict[str, Any] | None = ring.errors.pop(sequence, None)
    return None if error is None else error_from_wire(error)
