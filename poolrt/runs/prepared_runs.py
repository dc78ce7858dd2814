"""The prepared places of one model on one connection, a set on each ring: made when they are needed, used again and again.

Everything unusual is left to the path of all runs: inputs that must be converted or that an error is about, arrays that are in
shared memory already, rings that are full, paused or not there yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from poolrt.errors import ArenaFull, PoolRefused
from poolrt.workers.ipc.ring import CAPACITY, DONE, EXECUTED, SLOTS_LIMIT, STATE, SUBMITTED, WORKER_SLEEPS
from poolrt.workers.kernels.native.ring_words import ENDED, FINISHED

from .placed_runs import PlacedRun
from .prepared_places import FULL, PreparedPlaces, bytes_of
from .ring_runs import GLANCE
from .run_inputs import Outputs

if TYPE_CHECKING:
    from poolrt.model import TensorSpec

    from .client_ring import ClientRing
    from .loaded_model import LoadedModel

#: Bytes of the largest tensor that is copied: an array that owns its slot costs as much as this copy.
LARGEST: Final = 16 * 1024
#: Places on a ring at first, of a thread that only runs; and bytes of those of one model on one ring.
_FIRST: Final = 4
_BYTES: Final = 128 * 1024
#: Ends of a wait after which a run has probably ended.
_OVER: Final = frozenset((ENDED, FINISHED))


class PreparedRuns:
    """Prepared places of the model that ``loaded`` is; that refers to this object. Safe for use by several threads."""

    __slots__ = (
        "__weakref__",
        "_inputs",
        "_limit",
        "_places",
        "_results",
        "_usual",
        "client",
        "closed",
        "memory",
        "number",
    )

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
        #: Those of the last run, if they are kept.
        self._usual: PreparedPlaces | None = None
        #: Whether its model has been closed: places are not kept any more.
        self.closed = False
        self.memory.shed.add(self)
        self.client.rings.users.add(self)

    def run(self, loaded: LoadedModel, inputs: dict[str, Any], deadline: float | None) -> Outputs | PlacedRun | None:
        """Run and return the outputs; None if it was not begun, or a run that has ended without outputs.

        Raises TimeoutError after the deadline.
        """
        # On the ring of the last run, if nothing else is there: the steps of `_run_beside` and `PreparedPlaces.put` in one frame,
        # because their calls and attributes take as long as all the rest. What is unusual is left to these.
        places, client = self._usual, self.client
        if places is None or deadline is not None or client.lost is not None or len(inputs) != places.input_count:
            return self._run_beside(loaded, inputs, deadline)
        ring, lock, words, writers, number, heads, ports, results, held = places.parts
        done, end, is_led = words[DONE], ring.compiled, ring.leading
        if words[SUBMITTED] != done or is_led or end is None or self.number not in ring.models:
            return self._run_beside(loaded, inputs, None)
        run, runs, sleep, sequence, leads = None, None, 0, 0, False
        early = ring.early_bell
        following = done + 1
        index = following % CAPACITY
        place = index & places.mask
        try:
            if words[WORKER_SLEEPS] or early.rest:
                sleep = early.ring(ring)
            with lock:
                if (
                    words[SUBMITTED] == done
                    and held[place] is None
                    and not ring.leading
                    and not words[STATE]  # `OPEN` is 0
                    and not ring.lost
                    and not loaded.closing
                ):
                    kind = places.kind
                    for name, view, dtype, shape in ports[index]:
                        given: Any = inputs.get(name)
                        if (
                            type(given) is not kind
                            or given.shape != shape
                            or (given.dtype is not dtype and given.dtype != dtype)
                        ):
                            return None
                        view[...] = given
                    newest = places.runs
                    if newest is None or ring.newest is not newest:
                        newest = places.begin(following)
                    newest.sequence = following
                    runs = newest
                    held[place] = inputs
                    if writers[index] != number:
                        places.write(index)
                    words[heads[index]] = following
                    words[SUBMITTED] = sequence = following
                    ring.leading = leads = True
            if not sequence or runs is None:
                return self._run_beside(loaded, inputs, None)
            if sleep:
                early.note(ring, sleep)
            outcome = end.wait(sequence)
            if outcome not in _OVER:
                ring.handle(outcome, sequence, client, None)
            # Without the lock: a thread that follows looks again after it has said so.
            ring.leading = leads = False
            if ring.followers:
                ring.call_follower()
            # The status that the wait has seen is that of this run if nothing else was begun on the ring.
            if outcome != FINISHED or ring.newest is not runs or runs.counted or not index:
                run = PlacedRun.of(runs, sequence)
                held[place] = run
                return self._finish(run, places, loaded, None)
            outputs = Outputs()
            for name, view in results[index]:
                outputs[name] = view.copy()
            held[place] = None
            return outputs
        except BaseException as error:
            if leads:
                # Not in a function: an interrupt before its first line would leave no thread that ever leads again.
                ring.leading = leads = False
                ring.call_follower()
            if runs is not None:
                run = run or PlacedRun.of(runs, sequence)
                if held[place] is inputs:
                    held[place] = run
                run.leave(loaded, timed_out=isinstance(error, TimeoutError))
            raise

    def _run_beside(
        self, loaded: LoadedModel, inputs: dict[str, Any], deadline: float | None
    ) -> Outputs | PlacedRun | None:
        """Run as `run`, on the ring with the fewest runs in flight."""
        places = self.find()
        if places is None:
            return None
        run, ring = PlacedRun(), places.ring
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
                outcome = ENDED if ring.compiled is None else ring.compiled.wait(sequence)
                if outcome not in _OVER:
                    ring.handle(outcome, sequence, self.client, None)
                ring.leading = run.leads = False
                if ring.followers:
                    ring.call_follower()
            found = self._finish(run, places, loaded, deadline)
            if self._usual is None:
                self._usual = places
                # Another thread has released them meanwhile, or this ring took the run only because the first one did not.
                if self._places.get(ring) is not places or self.client.rings.find(self.number) is not ring:
                    self._usual = None
            return found
        except BaseException as error:
            if run.leads:
                # Not in a function: an interrupt before its first line would leave no thread that ever leads again.
                ring.leading = run.leads = False
                ring.call_follower()
            run.leave(loaded, timed_out=isinstance(error, TimeoutError))
            raise

    def _finish(
        self, run: PlacedRun, places: PreparedPlaces, loaded: LoadedModel, deadline: float | None
    ) -> Outputs | PlacedRun:
        """Wait for a run and return the outputs, or the run if it has ended without. The caller calls `PlacedRun.leave`."""
        ring = places.ring
        status = run.status
        if not status:
            ring.wake()
            ring.wait(run, self.client, deadline)
            status = run.status
        if not run.sequence % GLANCE:
            self.client.glance()
        if status != EXECUTED:
            return run
        outputs = places.copy(run.sequence)
        run.release()
        return outputs

    def find(self) -> PreparedPlaces | None:
        """Return the places on the ring that takes runs of the model and has the fewest in flight; None if there are none."""
        if self.client.closed:
            return None
        ring = self.client.rings.find(self.number)
        return None if ring is None else self._places.get(ring) or self._make(ring, _FIRST)

    def grow(self, places: PreparedPlaces) -> PreparedPlaces | None:
        """Return more places on a ring, all of which are in use; None if there are as many as may be."""
        ring = places.ring
        if self.client.abandoned:
            self.client.abandoned.cancel()  # for the next runs
        present = self._places.get(ring)
        if present is not None and present is not places:
            return present
        return None if places.count >= self._limit else self._make(ring, 8 * places.count)

    def forget(self, ring: ClientRing) -> None:
        """Release the places of a ring that is lost."""
        self._places.pop(ring, None)
        self._usual = None

    def choose_again(self) -> None:
        """Look for the first ring that is idle at the next run: another one is the first now, or takes the model too."""
        self._usual = None

    def close(self) -> None:
        """Release the places, those in use at their end."""
        self.closed = True
        self.shed()

    def shed(self) -> int:
        """Release places that are not in use; return whether there were any."""
        places, self._places = self._places, {}
        self._usual = None
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
        self._usual = None
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
