"""The prepared places of one model on one connection, a set on each ring: made when they are needed, used again and again.

Everything unusual is left to the path of all runs: inputs that must be converted or that an error is about, arrays that are in
shared memory already, rings that are full, paused or not there yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from poolrt.errors import ArenaFull, PoolRefused
from poolrt.workers.ipc.ring import CAPACITY, EXECUTED, SLOTS_LIMIT

from .placed_runs import PlacedRun
from .prepared_places import FULL, PreparedPlaces, bytes_of
from .ring_runs import GLANCE

if TYPE_CHECKING:
    from poolrt.model import TensorSpec

    from .client_ring import ClientRing
    from .loaded_model import LoadedModel
    from .run_inputs import Outputs

#: Bytes of the largest tensor that is copied: an array that owns its slot costs as much as this copy.
LARGEST: Final = 16 * 1024
#: Places on a ring at first, of a thread that only runs; and bytes of those of one model on one ring.
_FIRST: Final = 4
_BYTES: Final = 128 * 1024


class PreparedRuns:
    """Prepared places of the model that ``loaded`` is; that refers to this object. Safe for use by several threads."""

    __slots__ = ("__weakref__", "_inputs", "_limit", "_places", "_results", "client", "closed", "memory", "number")

    def __init__(self, loaded: LoadedModel, inputs: Sequence[TensorSpec], results: Sequence[TensorSpec]) -> None:
        self.client = loaded.client
        self.memory = loaded.memory
        self.number = loaded.number
        self._inputs = inputs
        self._results = results
        nbytes, limit = bytes_of((*inputs, *results)), CAPACITY
        while limit > 2 and limit * nbytes > _BYTES:
            limit //= 2
        #: The most places on a ring.
        self._limit = limit
        self._places: dict[ClientRing, PreparedPlaces] = {}
        #: Whether its model has been closed: places are not kept any more.
        self.closed = False
        self.memory.shed.add(self)
        self.client.rings.users.add(self)

    def run(self, loaded: LoadedModel, inputs: dict[str, Any], deadline: float | None) -> Outputs | PlacedRun | None:
        """Run and return the outputs; None if it was not begun, or a run that has ended without outputs.

        Raises TimeoutError after the deadline.
        """
        client = self.client
        ring = None if client.closed else client.rings.find(self.number)
        if ring is None:
            return None
        places = self._places.get(ring) or self._make(ring, _FIRST)
        if places is None:
            return None
        run = PlacedRun()
        early = ring.early_bell
        try:
            sleep = early.ring(ring)
            sequence = places.put(inputs, run, loaded, run if deadline is None else None)
            if sleep:
                early.note(ring, sleep)
            if sequence <= 0:
                if sequence == FULL:
                    self.grow(places)
                return None
            run.sequence = sequence
            if run.leads:
                ring.wait_alone(run, client)
                if run.leads:
                    ring.leading = run.leads = False
                    ring.call_follower()
            runs = run.runs
            status = runs.status_of(sequence) if runs is not None else 0
            if not status:
                ring.wake()
                ring.wait(run, client, deadline)
                status = run.status
            if not sequence % GLANCE:
                client.glance()
            if status != EXECUTED:
                return run
            outputs = places.copy(sequence)
            places.free(sequence)
            if runs is not None and runs.counted:
                run.release()
            return outputs
        except BaseException as error:
            if run.leads:
                # Not in a function: an interrupt before its first line would leave no thread that ever leads again.
                ring.leading = run.leads = False
                ring.call_follower()
            run.leave(loaded, timed_out=isinstance(error, TimeoutError))
            raise

    def find(self) -> PreparedPlaces | None:
        """Return the places on the ring that takes runs of the model and has the fewest in flight; None if there are none."""
        if self.client.closed:
            return None
        ring = self.client.rings.find(self.number)
        return None if ring is None else self._places.get(ring) or self._make(ring, _FIRST)

    def grow(self, places: PreparedPlaces) -> PreparedPlaces | None:
        """Return more places on a ring, all of which are in use; None if there are as many as may be."""
        ring = places.ring
        present = self._places.get(ring)
        if present is not None and present is not places:
            return present
        return None if places.count >= self._limit else self._make(ring, 8 * places.count)

    def forget(self, ring: ClientRing) -> None:
        """Release the places of a ring that is lost."""
        self._places.pop(ring, None)

    def close(self) -> None:
        """Release the places, those in use at their end."""
        self.closed = True
        self.shed()

    def shed(self) -> int:
        """Release places that are not in use; return whether there were any."""
        places, self._places = self._places, {}
        for ring in places:
            ring.look()
        return len(places)

    def _make(self, ring: ClientRing, count: int) -> PreparedPlaces | None:
        if self.closed or not ring.is_compiled:
            return None
        count = min(count, self._limit)
        specs = (*self._inputs, *self._results)
        lease: list[int] = []
        try:
            lease = self.memory.take([count * bytes_of(specs)])
            places = PreparedPlaces(ring, self, count, lease, self._inputs, self._results)
        except (ArenaFull, PoolRefused):
            return None
        except BaseException:
            if lease:
                self.memory.release(lease.pop())
            raise
        self._places[ring] = places
        if ring.lost:
            self.forget(ring)  # the message that says so may have come before
        return places


def prepare_runs(
    loaded: LoadedModel, inputs: Sequence[TensorSpec], results: Sequence[TensorSpec]
) -> PreparedRuns | None:
    """Return the prepared runs of a model, None for one with large tensors, or too many."""
    specs = (*inputs, *results)
    if len(specs) > SLOTS_LIMIT or any(spec.nbytes > LARGEST for spec in specs):
        return None
    return PreparedRuns(loaded, inputs, results)
