"""A loaded graph: run it, once or many times."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Never, NoReturn

from poolrt.cachestore.deferred_dataclass import dataclass
from poolrt.errors import CoordinatorLoss, PoolClosed
from poolrt.workers.ipc.channel import Message
from poolrt.workers.ipc.protocol import Kind

from .connection.link import Link
from .connection.session import Session
from .graph.cut_outputs import Cut, hidden_outputs
from .runs.loaded_model import LoadedModel
from .runs.model_run import ModelRun
from .runs.placed_runs import PlacedRun
from .runs.prepared_runs import prepare_runs
from .runs.run_inputs import Outputs, check_inputs, refuse_unnamed, seconds_of, suggest_method

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from .plan_listing import PlanListing

#: Runs of one model in flight; `submit` waits for one to end before it starts another.
IN_FLIGHT: Final = 256
#: A number for each model of this process.
_NUMBERS: Final = itertools.count()


def _import_first_runs() -> None:
    """Import what first runs, futures and maps import, and wait for threads that import some of it, before a fork.

    A child that needs a module that another thread imports would wait for that thread for ever: it does not exist there, and
    Python keeps its lock.
    """
    import poolrt.functions.call_rings
    import poolrt.workers.engines.object_loader
    import poolrt.workers.primitives.entry  # noqa: F401 - imported for later calls

    from .runs import mapped_runs, ring_ends, ring_run, submitted_run  # noqa: F401 - the same


os.register_at_fork(before=_import_first_runs)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of a model: its name, shape, and NumPy's name of its data type.

    NumPy has no bfloat16: such tensors are arrays of uint16 with the same bits. An array of another library's bfloat16
    is accepted too.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int

    @property
    def array_dtype(self) -> str:
        """The data type of the arrays that runs take and return."""
        return "uint16" if self.dtype == "bfloat16" else self.dtype


class Model:
    """A loaded graph. Made by `Pool.load`; its memory on the pool is freed when it is closed or no longer referred to.

    ``inputs`` and ``outputs`` describe its tensors (the largest shape, if a run counts how many elements an output has),
    ``report`` the sources of its primitives:
    ``{"primitives": {"total", "created", "waited", "derived", "memory", "files", "prebuilt", "redis"}, "load_s"}``.

    It keeps its graph (see the setting ``keep_graphs``): in a forked process, and after a restart of the server, the next
    call loads it again.
    """

    def __init__(
        self,
        session: Session,
        load: Callable[[Link], Message] | None,
        link: Link,
        loaded: Message,
        report: dict[str, Any],
        name: str,
        cuts: Mapping[str, Cut],
    ) -> None:
        """Take what a connection has answered; ``load`` loads the graph on another one, ``cuts`` are the graph's."""
        _, _, number, inputs, outputs, _ = loaded
        self.name = name
        self.inputs = tuple(_spec(port) for port in inputs)
        self._results = tuple(_spec(port) for port in outputs)
        self._output_sizes = [spec.nbytes for spec in self._results]
        self._cuts = cuts
        #: How many runs of futures in a row one worker may get; 0: as many as `run_pace` says.
        self._batch = 0
        hidden = hidden_outputs(cuts.values())
        self.outputs = tuple(spec for spec in self._results if spec.name not in hidden)
        self.report = report
        self._session = session
        self._load = load
        self._number = next(_NUMBERS)
        self._loaded = self._take(link, number)

    def run(self, /, *unnamed: Never, timeout: Any = None, **inputs: Any) -> dict[str, NDArray[Any]]:
        """Run on one array for each input and return the outputs by name.

        Inputs are arrays of exactly the shape and data type of `inputs`; one made by `Pool.empty`, or an output of a run,
        is used in place, any other is copied once. Outputs of more than 16 KiB are views into shared memory, which is
        released when they are dropped; copies if a program holds arrays of more than half of it. If there is no memory, waits for
        other runs of this program, which have some. Raises ValueError for a wrong name or shape, TypeError for a wrong data
        type, and the errors of `poolrt.errors`.

        Raises TimeoutError if it has not ended ``timeout`` seconds after the call. It is withdrawn then; a worker that has
        begun it and needs two seconds more is replaced. If the model has an input named timeout, this is the input.
        """
        loaded, lost, limit_s, deadline = self._loaded, 0, None, None
        if timeout is not None and (limit_s := self._limit_of(timeout, inputs)) is not None:
            deadline = time.monotonic() + limit_s
        prepared = loaded.prepared
        try:
            if prepared is not None and not unnamed:
                try:
                    found = prepared.run(loaded, inputs, deadline)
                except CoordinatorLoss:
                    if not self._session.settings.retries or not self._session.may_repeat(loaded.link):
                        raise
                    found, lost = None, 1
                if type(found) is Outputs:
                    return found
                if isinstance(found, PlacedRun):
                    return ModelRun.resume(self, loaded, found).finish(deadline)
            self._refuse_unnamed(unnamed)
            run = ModelRun(self, self._check(inputs))
            return self._session.repeat(partial(run.perform, deadline=deadline), deadline, lost)
        except TimeoutError:
            if limit_s is None:
                raise
            raise self._timed_out(limit_s) from None

    def submit(self, /, *unnamed: Never, timeout: Any = None, **inputs: Any) -> Future[dict[str, NDArray[Any]]]:
        """Start a run and return a future of what `run` returns. Waits while `IN_FLIGHT` runs are in flight.

        `cancel` works until a worker begins. Raises RuntimeError after `Pool.shutdown` (PoolClosed).

        An input that is used in place must not change until the future is done.

        The future gets a TimeoutError if its run has not ended after ``timeout`` seconds, as `run` says.
        """
        if unnamed:
            self._refuse_unnamed(unnamed)
        return self._submit_within(inputs, None if timeout is None else self._limit_of(timeout, inputs))

    def map(
        self, batches: Iterable[Mapping[str, Any]], in_flight: int | None = None, timeout: float | None = None
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """Run on each of ``batches`` (inputs by name) and yield the outputs in order.

        At most ``in_flight`` batches (default 8) are read in advance, so that an endless iterable uses bounded memory.
        ``timeout`` is that of each run, from its beginning, as of `run`: TimeoutError ends the iteration.
        """
        from .runs.mapped_runs import map_runs  # models that run one by one need none of it

        limit = 8 if in_flight is None else in_flight
        if limit < 1:
            raise ValueError(f"in_flight must be at least 1, got {limit}")
        return map_runs(self, batches, limit, None if timeout is None else seconds_of(timeout))

    def plan(self) -> PlanListing:
        """Return the steps of every run: operations, implementations, engines, layouts, and inserted reorders."""
        from .plan_listing import PlanListing

        def ask(link: Link) -> Message:
            return link.client.ask(Kind.EXPLAIN, self._loaded_on(link).number)

        self._require_open()
        _, _, plan, descriptors = self._session.repeat(ask)
        return PlanListing.from_wire(plan, descriptors)

    def close(self) -> None:
        """Free the model's memory on the pool. Runs in flight end as usual; further ones raise PoolClosed."""
        self._load = None
        self._loaded.close()

    if not TYPE_CHECKING:  # type checkers refuse unknown names themselves

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError that says what a method of another library is called here."""
            raise AttributeError(f"a Model has no {name!r}{suggest_method(name, type(self))}", name=name)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{s.name}: {s.dtype}{list(s.shape)}" for s in self.inputs)
        outputs = ", ".join(f"{s.name}: {s.dtype}{list(s.shape)}" for s in self.outputs)
        return f"<poolrt.Model {self.name} ({inputs}) -> ({outputs})>"

    def _repr_html_(self) -> str:
        """Return a table of inputs and outputs, and the sources of the primitives, for notebooks."""
        from .notebooks.html_table import shape_of, table

        specs = [(kind, s) for kind, specs in (("input", self.inputs), ("output", self.outputs)) for s in specs]
        rows = [(s.name, kind, shape_of(s.shape), s.dtype) for kind, s in specs]
        sources = ", ".join(f"{name} {count}" for name, count in self.report["primitives"].items())
        state = "" if not self._loaded.closed else " (closed)"
        caption = f"Model {self.name}{state}, loaded in {self.report['load_s']:.2f} s; primitives: {sources}"
        return table(caption, ("name", "kind", "shape", "dtype"), rows)

    def _refuse_unnamed(self, unnamed: tuple[object, ...]) -> None:
        if unnamed:
            refuse_unnamed(f"model {self.name}", [spec.name for spec in self.inputs], unnamed)

    def _check(self, inputs: Mapping[str, Any]) -> list[NDArray[Any]]:
        """Return the inputs in order, as arrays of the right shape and data type."""
        self._require_open()
        return check_inputs(self.name, self.inputs, inputs)

    def _submit_within(self, inputs: dict[str, Any], limit_s: float | None) -> Future[dict[str, NDArray[Any]]]:
        """Start a run that has so many seconds, and return its future."""
        loaded, lost = self._loaded, 0
        if loaded.prepared is not None and not loaded.client.closed:
            pace = loaded.pace
            if pace is None:
                from .runs.submitted_run import FuturePace  # not before the first future

                pace = loaded.pace = FuturePace(self._batch)
            try:
                begun = pace.submit(self, loaded, inputs, limit_s)
            except CoordinatorLoss as error:  # while it took memory for a place
                if not self._session.may_repeat_after(error, loaded.link):
                    raise
                begun, lost = None, 1
            if begun is not None:
                return begun
        from .connection.futures import PoolFuture

        run = ModelRun(self, self._check(inputs))
        future: PoolFuture[dict[str, NDArray[Any]]] = PoolFuture()

        def begin(link: Link) -> None:
            from .runs.submitted_run import submit_on_ring

            loaded = self._loaded_on(link)
            link.client.check_open()
            if submit_on_ring(self, run, link, future, limit_s):
                return
            if not link.client.in_own_thread:
                link.client.wait_while(partial(loaded.has_running, IN_FLIGHT))
            future.withdraw = run.withdraw
            run.begin(link, future)
            if limit_s is not None:
                self._session.deadlines.watch(future, limit_s, run.expire)

        self._session.repeat(begin, None, lost)
        return future

    def _limit_of(self, timeout: Any, inputs: dict[str, Any]) -> float | None:
        """Return a timeout in seconds; None if it is an input of this model, which is added to the others."""
        if any(spec.name == "timeout" for spec in self.inputs):
            inputs["timeout"] = timeout
            return None
        return seconds_of(timeout)

    def _timed_out(self, limit_s: float) -> TimeoutError:
        return TimeoutError(f"a run of model {self.name} has not ended within {limit_s:g} s")

    def _take(self, link: Link, number: int) -> LoadedModel:
        """Return this model as a connection has it. Its runs are prepared if the sizes of all outputs are known."""
        loaded = LoadedModel(link, number, self.inputs)
        if not self._cuts:
            loaded.prepared = prepare_runs(loaded, self.inputs, self._results)
        return loaded

    def _require_open(self) -> None:
        if self._loaded.closed:
            raise self._closed()

    def _closed(self) -> PoolClosed:
        return PoolClosed(f"model {self.name} is closed: load its graph again")

    def _loaded_on(self, link: Link) -> LoadedModel:
        """Return the model on a connection; load it there first if it is of an earlier one. Raises what loading raises."""
        loaded = self._loaded
        if loaded.link is link:
            return loaded
        with link.loading(self._number):
            loaded = self._loaded
            if loaded.link is not link:
                self._require_open()
                load = self._load
                if load is None:
                    text = f"model {self.name} is of a connection that has ended, and its graph was not kept"
                    raise PoolClosed(f"{text} (the setting keep_graphs): load it again")
                self._loaded, former = self._take(link, load(link)[2]), loaded
                if former.closed:
                    self._loaded.close()  # another thread has closed the model meanwhile
            return self._loaded


def _spec(port: list[Any]) -> TensorSpec:
    from poolrt.workers.desc.data_type import type_name

    name, dims, dtype, nbytes = port
    return TensorSpec(name, tuple(dims), type_name(dtype), nbytes)
