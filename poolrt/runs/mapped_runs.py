"""The runs of `Model.map`: in prepared places if possible, at a `RunPace`, and their outputs in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any

from poolrt.errors import ArenaFull, CoordinatorLoss
from poolrt.workers.ipc.ring import CAPACITY, DONE, EXECUTED, STATE, SUBMITTED, WORKER_SLEEPS

from .loaded_model import LoadedModel
from .memory_wait import MemoryWait
from .model_run import ModelRun
from .placed_runs import PlacedRun, PlacedRuns
from .prepared_places import FULL, REFUSED, PreparedPlaces
from .run_inputs import Outputs
from .run_pace import BATCH, CLOCK, GAP_NS, RunPace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.model import Model


def map_runs(
    model: Model, batches: Iterable[Mapping[str, Any]], limit: int, timeout: float | None
) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the outputs of runs on inputs, in order, with at most ``limit`` in flight.

    Raises TimeoutError for a run that has not ended ``timeout`` seconds after it was begun.
    """
    from numpy import ndarray

    runs = _MappedRuns(model, limit, timeout)
    begin, finish, begun_at = runs.begin, runs.finish, runs.begun_at
    source = iter(batches)
    try:
        for inputs in source:
            while True:
                while runs.count >= limit or not begin(inputs):
                    limit = runs.limit
                    yield finish()
                newest = runs.newest
                if newest is None or newest.places is not runs.unrung or runs.at_once:
                    break
                # The runs that follow in the same batch: this has the steps of `begin`, `put` and `finish` in one frame, because
                # their calls and attributes add 0.5 us to a run of 2. All that is unusual is left to these.
                loaded, placed = newest.loaded, newest.runs
                ring, lock, words, writers, number, heads, ports, _, held = newest.places.parts
                mask, width = len(held) - 1, len(ports[0])
                left, count = runs.left, runs.count
                #: Runs that begin before the clock and the room are looked at.
                budget = 0
                for inputs in source:
                    if not budget:
                        if count >= limit:
                            # Some outputs at once: the runs behind them keep the workers busy.
                            oldest = runs.oldest()
                            if oldest is None:
                                break
                            first = oldest.next
                            if first > oldest.done and not oldest.has_executed(first):
                                break
                            _, _, _, _, _, _, _, results, kept = oldest.places.parts
                            kept_mask = len(kept) - 1
                            end = min(oldest.done, first + runs.batch - 1)
                            for sequence in range(first, end + 1):
                                found = Outputs()
                                for name, view in results[sequence % CAPACITY]:
                                    found[name] = view.copy()
                                kept[sequence & kept_mask] = None
                                oldest.next = sequence + 1
                                if sequence == oldest.last:
                                    runs.pop()
                                if begun_at:
                                    begun_at.popleft()
                                yield found
                            count -= end + 1 - first
                            if runs.newest is not newest:
                                break
                        now = perf_counter_ns()
                        if not left or now - runs.looked > GAP_NS or model._loaded is not loaded or words[STATE]:
                            break
                        runs.looked = now
                        budget = min(left, limit - count, CLOCK, words[DONE] + len(held) - newest.last)
                        if budget <= 0:
                            break
                    if type(inputs) is not dict or len(inputs) != width:
                        break
                    with lock:
                        sequence = newest.last + 1
                        index = sequence % CAPACITY
                        if (
                            placed.sequence != newest.last
                            or ring.newest is not placed
                            or held[index & mask] is not None
                            or loaded.closing
                        ):
                            break
                        usual = True
                        for name, view, dtype, shape in ports[index]:
                            given = inputs.get(name)
                            if (
                                type(given) is not ndarray
                                or given.shape != shape
                                or (given.dtype is not dtype and given.dtype != dtype)
                            ):
                                usual = False
                                break
                            view[...] = given
                        if not usual:
                            break
                        placed.sequence = sequence
                        held[index & mask] = runs
                        if writers[index] != number:
                            newest.places.write(index)
                        words[heads[index]] = sequence
                        words[SUBMITTED] = newest.last = sequence
                    count += 1
                    if timeout is not None:
                        begun_at.append(monotonic())
                    left -= 1
                    budget -= 1
                    sleep = words[WORKER_SLEEPS]
                    if not left:
                        runs.wake()
                    elif sleep and not sleep & 1:
                        runs.wake_early(newest.places)
                else:
                    runs.count = count
                    break
                runs.left, runs.count = left, count
        while runs.count:
            yield finish()
    except GeneratorExit:
        # The collector may drop the iterator in a thread that holds a lock.
        model._loaded.client.abandoned.leave(deque([runs]))
        raise
    except BaseException:
        runs.cancel()
        raise
    runs.cancel()


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

    def has_executed(self, sequence: int) -> bool:
        """Note which runs were executed, and return whether a run and all before it were."""
        if self.places.words[DONE] < sequence:
            return False
        self.done = self.runs.executed_to(sequence, self.last)
        return self.done >= sequence


class _MappedRuns(RunPace):
    """The runs of one map that are in flight, oldest first. It owns their places."""

    __slots__ = ("_limit_s", "_model", "begun_at", "count", "limit", "newest", "runs", "under_way")

    def __init__(self, model: Model, limit: int, timeout: float | None) -> None:
        super().__init__(max(1, min(BATCH, limit // 4)), limit)
        self._model = model
        self._limit_s = timeout
        #: How many may be in flight.
        self.limit = limit
        self.under_way: deque[ModelRun | _Stretch] = deque()
        #: The last one, if it can grow.
        self.newest: _Stretch | None = None
        #: When each was begun, if there is a limit.
        self.begun_at: deque[float] = deque()
        #: How many are in flight.
        self.count = 0
        #: The runs of a ring that the last one belongs to, as `PreparedPlaces.put` sets it.
        self.runs: PlacedRuns | None = None

    def begin(self, inputs: Any) -> bool:
        """Begin a run; False if too many are in flight."""
        loaded, session, lost = self._model._loaded, self._model._session, 0
        try:
            sequence = self.put(inputs, self, loaded)
        except CoordinatorLoss as error:  # while it took memory for a place
            if not session.may_repeat_after(error, loaded.link):
                raise
            sequence, lost = REFUSED, 1
        if sequence > 0:
            newest = self.newest
            if newest is not None and newest.last + 1 == sequence and newest.runs is self.runs:
                newest.last = sequence
            else:
                self._add(sequence, loaded)
            self.count += 1
            if self._limit_s is not None:
                self.begun_at.append(monotonic())
            return True
        if sequence == FULL and self.count:
            # All rings are full, and a run that finds no place first costs three that find one: fewer from now on.
            self.limit = min(self.limit, max(CAPACITY, self.count))
            return False
        run = ModelRun(self._model, self._model._check(inputs))
        self.newest = None
        self.under_way.append(run)
        try:
            session.repeat(partial(run.start, wait=MemoryWait(), sends=not self.count), None, lost)
        except ArenaFull:
            if not self.count:
                raise
            self.under_way.pop()
            return False  # the outputs of those in flight have the memory
        self.count += 1
        if self._limit_s is not None:
            self.begun_at.append(monotonic())
        return True

    def finish(self) -> dict[str, NDArray[Any]]:
        """Return the outputs of the oldest run. Raises its error, and TimeoutError."""
        oldest = self.under_way[0]
        deadline = None if self._limit_s is None else self.begun_at.popleft() + self._limit_s
        if isinstance(oldest, ModelRun):
            self.count -= 1
            self.pop()
            self.wake()
            try:
                return oldest.finish(deadline)
            except TimeoutError:
                raise self._timed_out() from None
        sequence = oldest.next
        if sequence > oldest.done and not oldest.has_executed(sequence) and not self._await(oldest, sequence, deadline):
            return self._resume(oldest, sequence, deadline)
        outputs = oldest.places.copy(sequence)
        oldest.places.free(sequence)
        self.count -= 1
        oldest.next = sequence + 1
        if sequence == oldest.last:
            self.pop()
        return outputs

    def cancel(self) -> None:
        """Withdraw what is in flight, or let it end; its outputs have no use. A forked process leaves it to its parent."""
        for each in self.under_way:
            if isinstance(each, ModelRun):
                if not each.client.inherited:
                    each.abandon()
            elif not each.loaded.client.inherited:
                each.places.abandon(self, each.runs, each.next, each.last, each.loaded)
        places, loaded = self.places, self._model._loaded
        if places is not None and not places.client.inherited:
            places.abandon(self, None, 1, 0, loaded)  # the place of a run that an interrupt has kept from being noted

    def _add(self, sequence: int, loaded: LoadedModel) -> None:
        places, runs = self.places, self.runs
        if places is not None and runs is not None:
            self.newest = stretch = _Stretch(places, runs, sequence, loaded)
            self.under_way.append(stretch)

    def _advance(self, oldest: _Stretch) -> None:
        """Note that the outputs of the oldest run are the user's."""
        self.count -= 1
        oldest.next += 1
        if oldest.next > oldest.last:
            self.pop()

    def oldest(self) -> _Stretch | None:
        """Return the oldest runs, None if they have no places."""
        oldest = self.under_way[0]
        return oldest if isinstance(oldest, _Stretch) else None

    def pop(self) -> None:
        """Forget the oldest, whose outputs are all the user's."""
        if self.under_way.popleft() is self.newest:
            self.newest = None

    def _timed_out(self) -> TimeoutError:
        return self._model._timed_out(self._limit_s or 0.0)

    def _await(self, oldest: _Stretch, sequence: int, deadline: float | None) -> bool:
        """Wait for a run, and note which ones were executed; return whether it was."""
        run = PlacedRun.of(oldest.runs, sequence)
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
        return oldest.has_executed(sequence)

    def _resume(self, oldest: _Stretch, sequence: int, deadline: float | None) -> dict[str, NDArray[Any]]:
        """Finish a run that has ended without outputs, or whose connection has ended."""
        self.wake()
        run = PlacedRun.of(oldest.runs, sequence)
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
