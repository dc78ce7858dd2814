"""The pace of runs that follow one another: which ring takes the next one, when its worker is woken, and how long a wait lasts.

A wake-up costs as much as ten short runs. So runs that follow one another quickly are given to one worker in a *batch*, which is
woken once for it, and the wait for one of them lasts until some more have ended. If the source of
inputs, the user of outputs or the runs are slow, each run begins at once, on the worker with the fewest.

Guarantees: a run begins within some milliseconds if its worker is free, even if the source of the next one blocks.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from poolrt.workers.ipc.ring import DONE, WORKER_SLEEPS

from .prepared_places import FULL, REFUSED, PreparedPlaces
from .ring_runs import GLANCE

if TYPE_CHECKING:
    from .loaded_model import LoadedModel
    from .placed_runs import PlacedRun
    from .prepared_runs import PreparedRuns

#: Runs of one batch, at most, and of a map that has enough in flight for all rings.
BATCH: Final = 16
_LARGE_BATCH: Final = 32
#: Wake-ups between looks at the coordinator's messages.
_GLANCE: Final = GLANCE // BATCH
#: Runs between looks at the clock; nanoseconds from one to the next after which runs begin at once, and how many do.
CLOCK: Final = 4
GAP_NS: Final = 200_000
_AT_ONCE: Final = 4
#: Nanoseconds of a wait for each run that has ended, from which on runs are long, and how many of the next ones begin at once.
_LONG_NS: Final = 100_000
_LONG_AT_ONCE: Final = 64


class RunPace:
    """The pace of the runs of one model that are begun in turn, in batches of ``batch`` at most.

    Batches are larger if the caller has up to ``in_flight`` runs in flight, and these are enough for one on each ring. Threads
    that share it disturb nothing but the pace.
    """

    __slots__ = ("_in_flight", "_prepared", "_woken", "at_once", "batch", "left", "looked", "places", "unrung")

    def __init__(self, batch: int, in_flight: int = 0) -> None:
        self.batch = batch
        self._in_flight = in_flight
        #: Runs that begin at once from now on.
        self.at_once = _AT_ONCE
        #: The places of the present batch, for whose last runs no bell was rung, and how many more runs it gets.
        self.unrung: PreparedPlaces | None = None
        self.left = 0
        #: How often a worker was woken.
        self._woken = 0
        #: What had the places of the present batch. Not the model, which refers to this pace: no cycle keeps it loaded.
        self._prepared: PreparedRuns | None = None
        #: When some run was begun, or a wait ended.
        self.looked = 0
        #: The places of the run that was begun last.
        self.places: PreparedPlaces | None = None

    def put(self, inputs: Any, owner: Any, loaded: LoadedModel) -> int:
        """Begin a run, as `PreparedPlaces.put`; its worker is woken now or later. `places` has its place."""
        places, left = self.unrung, self.left
        if not left % CLOCK:
            now = perf_counter_ns()
            if now - self.looked > GAP_NS:
                self.at_once = max(self.at_once, _AT_ONCE)
            self.looked = now
        prepared = loaded.prepared
        if places is None or self._prepared is not prepared:
            self._prepared = prepared
            places = self.places = None if prepared is None else prepared.find()
            if places is None:
                return REFUSED
            left = self._next_batch(places)
            if not self.at_once:
                places.defer()
        sequence = places.put(inputs, owner, loaded)
        if sequence <= 0:
            if sequence == FULL and prepared is not None and (more := prepared.grow(places)) is not None:
                self.unrung, self.places = more, more
                return self.put(inputs, owner, loaded)
            self.wake()
            return sequence
        self.unrung, self.left = places, left - 1
        if self.at_once:
            self.at_once -= 1
            self.wake()
        elif left <= 1:
            self.wake()
        elif (sleep := places.words[WORKER_SLEEPS]) and not sleep & 1:
            # The lock that `put` has released is a barrier: the count was stored before this sleep was loaded.
            self.wake_early(places)
        return sequence

    def _next_batch(self, places: PreparedPlaces) -> int:
        """Return how many runs the next batch has."""
        if self._in_flight < 2 * BATCH:
            return self.batch
        rings = places.client.rings.count_rings(places.model)
        return max(self.batch, min(_LARGE_BATCH, self._in_flight // max(2, rings)))

    def wait(self, run: PlacedRun, loaded: LoadedModel, deadline: float | None = None) -> None:
        """Wait until a run has ended, perhaps until some more have. Raises what `ClientRing.wait` raises."""
        ring = run.ring
        if ring is None:
            return
        ring.look()
        if run.ended:
            return
        self.wake()
        begin, before = perf_counter_ns(), ring.words[DONE]
        ring.wait(run, loaded.client, deadline, 0 if self.at_once else self.batch)
        self.looked = perf_counter_ns()
        if self.looked - begin > _LONG_NS * max(1, ring.words[DONE] - before):
            self.at_once = _LONG_AT_ONCE

    def wake_early(self, places: PreparedPlaces) -> None:
        """Wake a worker that would not look again by itself, before the end of its batch."""
        places.ring.wake()
        self.looked = perf_counter_ns()

    def wake(self) -> None:
        """Wake the worker that has runs for which it was not woken."""
        places, self.unrung = self.unrung, None
        if places is not None:
            ring = places.ring
            ring.wake()
            self.looked = perf_counter_ns()
            ring.tell(places.client, self.looked)
            self._woken += 1
            if not self._woken % _GLANCE:
                places.client.glance()
