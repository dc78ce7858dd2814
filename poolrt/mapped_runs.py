"""The runs of `Model.map`: prepared ones if possible, and few wake-ups for many of them.

A wake-up costs as much as ten short runs. So runs that follow one another quickly are given to one worker in a *batch*, which is
woken once for it, and the wait for one of them lasts until some more have ended. Whatever is slow, the source of inputs, the
user of outputs or the runs, has each run begin at once, on the worker with the fewest.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from poolrt.errors import CoordinatorLoss
from poolrt.workers.ipc.ring import EXECUTED

from .loaded_model import LoadedModel
from .model_run import ModelRun
from .prepared_run import PreparedRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .client_ring import ClientRing
    from .model import Model

#: Runs of one batch, at most.
_BATCH: Final = 16
#: Nanoseconds between two runs from which on the next ones begin at once, and for how many runs.
_GAP_NS: Final = 50_000
_AT_ONCE: Final = 8
#: The same after a pause in which a worker could have done much, or after a wait that shows that runs are long, each.
_PAUSE_NS: Final = 1_000_000
_LONG_NS: Final = 100_000
_LONG_AT_ONCE: Final = 64
#: Runs between looks at the coordinator's messages, which waits that end soon never read.
_GLANCE: Final = 64


def map_runs(model: Model, batches: Iterable[Mapping[str, Any]], limit: int) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the outputs of runs on inputs, in order, with at most ``limit`` in flight."""
    runs = _MappedRuns(model, limit)
    under_way: deque[ModelRun | PreparedRun] = deque()
    begin, finish, take, add = runs.begin, runs.finish, under_way.popleft, under_way.append
    try:
        for inputs in batches:
            if len(under_way) >= limit:
                yield finish(take())
            run = begin(inputs)
            if run is not None:
                add(run)
                continue
            while runs.is_full and under_way and run is None:
                yield finish(take())
                run = begin(inputs)
            if run is not None:
                add(run)
                continue
            other = ModelRun(model, model._check(inputs))
            add(other)
            model._session.repeat(other.start)
        while under_way:
            yield finish(take())
    finally:
        for each in under_way:
            _abandon(each)


class _MappedRuns:
    """The pace of one map: which ring takes the next run, and when its worker is woken."""

    __slots__ = ("_at_once", "_batch", "_begun", "_left", "_loaded", "_model", "_returned", "_unrung", "is_full")

    def __init__(self, model: Model, limit: int) -> None:
        self._model = model
        self._loaded: LoadedModel = model._loaded
        self._batch = max(1, min(_BATCH, limit // 4))
        #: Runs that begin at once from now on.
        self._at_once = _AT_ONCE
        #: The ring that has runs for which its worker was not woken, and how many more it gets before.
        self._unrung: ClientRing | None = None
        self._left = 0
        self._begun = 0
        #: When the last run was begun, or a wait ended.
        self._returned = 0
        #: Whether the last run was not begun because too many are in flight.
        self.is_full = False

    def begin(self, inputs: Any) -> PreparedRun | None:
        """Begin a prepared run; None if it is unusual, or ``is_full``."""
        loaded = self._loaded = self._model._loaded
        prepared = loaded.prepared
        self.is_full = False
        if prepared is None or prepared.client.closed:
            return None
        now = time.perf_counter_ns()
        gap, self._returned = now - self._returned, now
        if gap > _GAP_NS:
            self._at_once = max(self._at_once, _AT_ONCE if gap < _PAUSE_NS else _LONG_AT_ONCE)
        ring = self._unrung
        if ring is None:
            ring = prepared.client.rings.find(loaded.number)
            if ring is None:
                self.is_full = prepared.client.rings.has_model(loaded.number)
                return None
            self._left = 0 if self._at_once else self._batch
        run = prepared.take()
        if run is None:
            self.is_full = True
            return None
        if type(inputs) is not dict or not run.fill(inputs, prepared.kind) or not ring.publish(run, loaded):
            prepared.give(run)
            self._wake()
            return None
        if self._at_once:
            self._at_once -= 1
        self._unrung = ring
        self._left -= 1
        if self._left <= 0:
            self._wake()
        self._begun += 1
        if not self._begun % _GLANCE:
            prepared.client.glance()
        return run

    def finish(self, run: ModelRun | PreparedRun) -> dict[str, NDArray[Any]]:
        """Return the outputs of the oldest run. Raises its error."""
        if run.status == EXECUTED:
            return run.finish()
        if isinstance(run, ModelRun):
            self._wake()
            return run.finish()
        loaded = self._loaded if run.keeper is None else run.keeper
        try:
            if not run.status:
                self._wait(run, loaded)
            if run.status == EXECUTED:
                return run.finish()
            self._wake()
            return ModelRun.resume(self._model, loaded, run).finish()
        except CoordinatorLoss:
            again = ModelRun(self._model, [view.copy() for view in run.inputs])
            again.note_loaded(loaded)
            _abandon(run)
            if not again.may_repeat():
                raise
            return self._model._session.repeat(again.perform)
        except BaseException:
            _abandon(run)
            raise

    def _wait(self, run: PreparedRun, loaded: LoadedModel) -> None:
        ring = run.ring
        if ring is None:
            return
        ring.look()
        if run.status:
            return
        self._wake()
        begin, before = time.perf_counter_ns(), len(ring)
        ring.wait(run, loaded.client, ahead=0 if self._at_once else self._batch)
        self._returned = time.perf_counter_ns()
        if self._returned - begin > _LONG_NS * max(1, before - len(ring)):
            self._at_once = _LONG_AT_ONCE

    def _wake(self) -> None:
        """Wake the worker that has runs for which it was not woken."""
        ring, self._unrung = self._unrung, None
        if ring is not None:
            ring.wake()
            self._returned = time.perf_counter_ns()


def _abandon(run: ModelRun | PreparedRun) -> None:
    """Withdraw a run whose outputs have no use, or let it end."""
    if isinstance(run, ModelRun):
        run.abandon()
    elif run.ring is not None:
        run.ring.abandon(run)
        run.ring.withdraw(run)
