"""The runs of `Model.map`: in prepared places if possible, at a `RunPace`, and their outputs in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from poolrt.errors import CoordinatorLoss
from poolrt.workers.ipc.ring import EXECUTED

from .loaded_model import LoadedModel
from .model_run import ModelRun
from .placed_runs import PlacedRun, PlacedRuns
from .prepared_places import FULL, PreparedPlaces
from .run_pace import BATCH, RunPace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.model import Model


def map_runs(
    model: Model, batches: Iterable[Mapping[str, Any]], limit: int, timeout: float | None
) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the outputs of runs on inputs, in order, with at most ``limit`` in flight.

    Raises TimeoutError for a run that has not ended ``timeout`` seconds after it was begun.
    """
    runs = _MappedRuns(model, limit, timeout)
    begin, finish = runs.begin, runs.finish
    try:
        for inputs in batches:
            if runs.count >= limit:
                yield finish()
            while not begin(inputs):
                yield finish()
        while runs.count:
            yield finish()
    finally:
        runs.abandon()


class _Stretch:
    """Runs of a map that follow one another in the same places."""

    __slots__ = ("done", "last", "loaded", "next", "places", "runs")

    def __init__(self, places: PreparedPlaces, runs: PlacedRuns, sequence: int, loaded: LoadedModel) -> None:
        self.places = places
        self.runs = runs
        #: The runs whose outputs were not yielded yet; the last one that is known to be executed.
        self.next = self.last = sequence
        self.done = 0
        self.loaded = loaded


class _MappedRuns(RunPace):
    """The runs of one map that are in flight, oldest first. It owns their places."""

    __slots__ = ("_begun_at", "_limit_s", "_model", "_newest", "_under_way", "count", "runs")

    def __init__(self, model: Model, limit: int, timeout: float | None) -> None:
        super().__init__(max(1, min(BATCH, limit // 4)))
        self._model = model
        self._limit_s = timeout
        self._under_way: deque[ModelRun | _Stretch] = deque()
        #: The last one, if it can grow.
        self._newest: _Stretch | None = None
        #: When each was begun, if there is a limit.
        self._begun_at: deque[float] = deque()
        #: How many are in flight.
        self.count = 0
        #: The runs of a ring that the last one belongs to, as `PreparedPlaces.put` sets it.
        self.runs: PlacedRuns | None = None

    def begin(self, inputs: Any) -> bool:
        """Begin a run; False if too many are in flight."""
        loaded = self._model._loaded
        sequence = self.put(inputs, self, loaded)
        if sequence > 0:
            newest = self._newest
            if newest is not None and newest.last + 1 == sequence and newest.runs is self.runs:
                newest.last = sequence
            else:
                self._add(sequence, loaded)
            self.count += 1
            if self._limit_s is not None:
                self._begun_at.append(time.monotonic())
            return True
        if sequence == FULL and self.count:
            return False
        run = ModelRun(self._model, self._model._check(inputs))
        self._newest = None
        self._under_way.append(run)
        self._model._session.repeat(run.start)
        self.count += 1
        if self._limit_s is not None:
            self._begun_at.append(time.monotonic())
        return True

    def finish(self) -> dict[str, NDArray[Any]]:
        """Return the outputs of the oldest run. Raises its error, and TimeoutError."""
        oldest = self._under_way[0]
        deadline = None if self._limit_s is None else self._begun_at.popleft() + self._limit_s
        if isinstance(oldest, ModelRun):
            self._pop()
            self.wake()
            try:
                return oldest.finish(deadline)
            except TimeoutError:
                raise self._timed_out() from None
        sequence = oldest.next
        if sequence > oldest.done and not self._await(oldest, sequence, deadline):
            return self._resume(oldest, sequence, deadline)
        outputs = oldest.places.copy(sequence)
        oldest.places.free(sequence)
        self.count -= 1
        oldest.next = sequence + 1
        if sequence == oldest.last:
            self._pop_stretch()
        return outputs

    def abandon(self) -> None:
        """Withdraw what is in flight, or let it end; its outputs have no use."""
        for each in self._under_way:
            if isinstance(each, ModelRun):
                each.abandon()
            else:
                each.places.abandon(self, each.runs, each.next, each.last, each.loaded)
        places, loaded = self.places, self._model._loaded
        if places is not None:
            places.abandon(self, None, 1, 0, loaded)  # the place of a run that an interrupt has kept from being noted

    def _add(self, sequence: int, loaded: LoadedModel) -> None:
        places, runs = self.places, self.runs
        if places is not None and runs is not None:
            self._newest = stretch = _Stretch(places, runs, sequence, loaded)
            self._under_way.append(stretch)

    def _advance(self, oldest: _Stretch) -> None:
        """Note that the outputs of the oldest run are the user's."""
        self.count -= 1
        oldest.next += 1
        if oldest.next > oldest.last:
            self._pop_stretch()

    def _pop(self) -> None:
        self.count -= 1
        self._pop_stretch()

    def _pop_stretch(self) -> None:
        if self._under_way.popleft() is self._newest:
            self._newest = None

    def _timed_out(self) -> TimeoutError:
        return self._model._timed_out(self._limit_s or 0.0)

    def _await(self, oldest: _Stretch, sequence: int, deadline: float | None) -> bool:
        """Wait for a run, and note which ones were executed; return whether it was."""
        run = PlacedRun(oldest.runs, sequence)
        try:
            if not run.status:
                self.wait(run, oldest.loaded, deadline)
        except CoordinatorLoss:
            return False
        except TimeoutError:
            ring = oldest.places.ring
            if ring.has_begun(run) and not run.status:
                ring.give_up(sequence, oldest.loaded.client)
            raise self._timed_out() from None
        done = oldest.runs.executed_to(sequence, oldest.last)
        oldest.done = done
        return done >= sequence

    def _resume(self, oldest: _Stretch, sequence: int, deadline: float | None) -> dict[str, NDArray[Any]]:
        """Finish a run that has ended without outputs, or whose connection has ended."""
        self.wake()
        run = PlacedRun(oldest.runs, sequence)
        loaded = oldest.loaded
        if run.status in (0, EXECUTED):
            # The connection has ended.
            again = ModelRun(self._model, run.inputs())
            again.note_loaded(loaded)
            run.release()
            self._advance(oldest)
            loss = loaded.client.lost
            if not again.may_repeat() and loss is not None:
                raise loss.copy()
            return self._model._session.repeat(again.perform)
        resumed = ModelRun.resume(self._model, loaded, run)
        self._advance(oldest)
        return resumed.finish(deadline)
