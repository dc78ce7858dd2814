"""The order in which each client uses its rings, of runs or of calls: a run or call goes to the first ring that is idle.

Guarantees: after a worker or a client has come or gone, no worker is the first of two more clients than another one, if each
client has a ring to each worker. Workers that cannot be used do not count, and neither do clients that submit nothing on rings.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

from poolrt.workers.ipc.protocol import Kind

from .instructions import Instruction, Send


class Serving(Protocol):
    """The properties of a worker on which the order depends."""

    @property
    def number(self) -> int: ...
    @property
    def ready(self) -> bool: ...
    @property
    def doomed(self) -> bool: ...


class Ordered(Protocol):
    """The properties of a ring that has a place in the order."""

    @property
    def number(self) -> int: ...
    @property
    def client(self) -> int: ...
    @property
    def worker(self) -> int: ...


R = TypeVar("R", bound=Ordered)
W = TypeVar("W", bound=Serving)


class RingOrder(Generic[R]):
    """Keeps the order of the rings of all clients, and lets clients know of a change by messages of a ``kind``."""

    def __init__(
        self, kind: Kind, workers: dict[int, Any], out: list[Instruction], unused_by: Container[int] = ()
    ) -> None:
        self._kind: Final = kind
        self._workers = workers
        #: Clients that submit nothing on rings.
        self._unused_by: Final = unused_by
        self._out = out
        #: The rings of each client that has not disconnected. A new ring is the last one, as in the client.
        self._rings: dict[int, list[R]] = {}

    def add(self, ring: R) -> None:
        """Add a new ring."""
        self._rings.setdefault(ring.client, []).append(ring)

    def remove(self, ring: R) -> None:
        """Remove a ring that its worker serves no more."""
        rings = self._rings[ring.client]
        rings.remove(ring)
        if not rings:
            del self._rings[ring.client]

    def withdraw(self, client: int) -> None:
        """Remove the rings of a client that has disconnected."""
        self._rings.pop(client, None)

    def find(self, client: int, worker: int) -> R | None:
        """Return a client's ring to a worker, None if there is none."""
        return next((ring for ring in self._rings.get(client, ()) if ring.worker == worker), None)

    def sort(self, workers: Iterable[W]) -> list[W]:
        """Return workers in the order in which a new client gets rings to them: by how many clients begin with each."""
        counts = self._count_clients()
        return sorted(workers, key=lambda worker: counts.get(worker.number, 0))

    def share(self) -> None:
        """Let clients begin with other workers until no worker is the first of two more clients than another one.

        One pass is enough: the least count never falls, and a worker that gets a client has one more than the least then.
        """
        counts = self._count_clients()
        if not counts:
            return
        least = min(counts, key=counts.__getitem__)
        for client, rings in self._rings.items():
            first = rings[0].worker
            if counts.get(first, 0) < counts[least] + 2 or client in self._unused_by:
                continue
            ring = self.find(client, least)
            if ring is None:
                continue
            rings.remove(ring)
            rings.insert(0, ring)
            self._out.append(Send(client, [self._kind, ring.number]))
            counts[first] -= 1
            counts[least] += 1
            least = min(counts, key=counts.__getitem__)

    def _count_clients(self) -> dict[int, int]:
        """Return how many clients begin with each worker that can be used."""
        counts = {worker.number: 0 for worker in self._workers.values() if worker.ready and not worker.doomed}
        for client, rings in self._rings.items():
            first = rings[0].worker
            if first in counts and client not in self._unused_by:
                counts[first] += 1
        return counts
