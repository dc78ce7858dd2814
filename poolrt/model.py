"""A loaded graph: run it, once or many times."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from poolrt.errors import ArenaFull, PoolClosed, error_from_wire
from poolrt.workers.ipc.channel import Message
from poolrt.workers.ipc.protocol import Kind

from .client import Client, Request
from .shared_memory import SharedMemory

if TYPE_CHECKING:
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from .plan_listing import PlanListing

#: Runs of one model in flight; `submit` waits for one to end before it starts another.
IN_FLIGHT: Final = 256
#: Views on input slots that one model keeps.
_VIEWS: Final = 512


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

    ``inputs`` and ``outputs`` describe its tensors, ``report`` the sources of its primitives:
    ``{"primitives": {"total", "created", "waited", "memory", "files", "redis"}, "load_s"}``.
    """

    def __init__(
        self, client: Client, memory: SharedMemory, name: str, loaded: Message, report: dict[str, Any]
    ) -> None:
        _, _, number, inputs, outputs, _ = loaded
        self.name = name
        self.inputs = tuple(_spec(port) for port in inputs)
        self.outputs = tuple(_spec(port) for port in outputs)
        self.report = report
        self._client = client
        self._memory = memory
        self._number: int = number
        self._running = 0
        self._input_views: dict[tuple[int, int], NDArray[Any]] = {}
        self._counting = threading.Lock()
        # Runs in flight refer to the model, so it is never unloaded while in use.
        self._unload = weakref.finalize(self, _unload, client, number)
        self._unload.atexit = False

    def run(self, /, **inputs: Any) -> dict[str, NDArray[Any]]:
        """Run on one array for each input and return the outputs by name.

        Inputs are arrays of exactly the shape and data type of `inputs`; one made by `Pool.empty`, or an output of a run,
        is used in place, any other is copied once. Outputs are views into shared memory, which is released when they
        are dropped; copy outputs that you keep for long. Raises ValueError for a wrong name or shape, TypeError for a wrong
        data type, and the errors of `poolrt.errors`.
        """
        run = _Run(self, inputs)
        request = run.begin(future=None)
        try:
            answer = self._client.next_answer(request)
        except BaseException:
            run.abandon()  # interrupted: its outputs have no use
            raise
        return run.results(answer)

    def submit(self, /, **inputs: Any) -> Future[dict[str, NDArray[Any]]]:
        """Start a run and return a future of what `run` returns. Waits while `IN_FLIGHT` runs are in flight.

        An input that is used in place must not change until the future is done.
        """
        from concurrent.futures import Future

        run = _Run(self, inputs)
        if not self._client.in_own_thread:
            self._client.wait_while(partial(self._has_running, IN_FLIGHT))
        future: Future[dict[str, NDArray[Any]]] = Future()
        future.set_running_or_notify_cancel()
        run.begin(future)
        return future

    def map(
        self, batches: Iterable[Mapping[str, Any]], in_flight: int | None = None
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """Run on each of ``batches`` (inputs by name) and yield the outputs in order.

        At most ``in_flight`` batches (default 8) are read in advance, so that an endless iterable uses bounded memory.
        """
        limit = 8 if in_flight is None else in_flight
        if limit < 1:
            raise ValueError(f"in_flight must be at least 1, got {limit}")
        under_way: deque[tuple[_Run, Request]] = deque()
        try:
            for inputs in batches:
                if len(under_way) >= limit:
                    run, request = under_way[0]
                    answer = self._client.next_answer(request)
                    under_way.popleft()
                    yield run.results(answer)
                run = _Run(self, inputs)
                under_way.append((run, run.begin(future=None)))
            while under_way:
                run, request = under_way[0]
                answer = self._client.next_answer(request)
                under_way.popleft()
                yield run.results(answer)
        finally:
            for run, _ in under_way:
                run.abandon()

    def plan(self) -> PlanListing:
        """Return the steps of every run: operations, implementations, engines, layouts, and inserted reorders."""
        from .plan_listing import PlanListing

        if not self._unload.alive:
            raise PoolClosed(f"model {self.name} is closed")
        _, _, plan, descriptors = self._client.ask(Kind.EXPLAIN, self._number)
        return PlanListing.from_wire(plan, descriptors)

    def close(self) -> None:
        """Free the model's memory on the pool. Runs in flight end as usual; further ones raise PoolClosed."""
        self._unload()

    def __repr__(self) -> str:
        inputs = ", ".join(f"{s.name}: {s.dtype}{list(s.shape)}" for s in self.inputs)
        outputs = ", ".join(f"{s.name}: {s.dtype}{list(s.shape)}" for s in self.outputs)
        return f"<poolrt.Model {self.name} ({inputs}) -> ({outputs})>"

    def _repr_html_(self) -> str:
        """Return a table of inputs and outputs, and the sources of the primitives, for notebooks."""
        from .html_table import shape_of, table

        specs = [(kind, s) for kind, specs in (("input", self.inputs), ("output", self.outputs)) for s in specs]
        rows = [(s.name, kind, shape_of(s.shape), s.dtype) for kind, s in specs]
        sources = ", ".join(f"{name} {count}" for name, count in self.report["primitives"].items())
        state = "" if self._unload.alive else " (closed)"
        caption = f"Model {self.name}{state}, loaded in {self.report['load_s']:.2f} s; primitives: {sources}"
        return table(caption, ("name", "kind", "shape", "dtype"), rows)

    def _check(self, inputs: Mapping[str, Any]) -> list[NDArray[Any]]:
        """Return the inputs in order, as arrays of the right shape and data type."""
        import numpy

        if not self._unload.alive:
            raise PoolClosed(f"model {self.name} is closed")
        if len(inputs) != len(self.inputs) or any(spec.name not in inputs for spec in self.inputs):
            wanted = ", ".join(f"{s.name} {s.dtype}{list(s.shape)}" for s in self.inputs)
            given = ", ".join(inputs) or "none"
            raise ValueError(f"model {self.name} takes the inputs {wanted}; given: {given}")
        arrays = []
        for spec in self.inputs:
            value = inputs[spec.name]
            array = value if isinstance(value, numpy.ndarray) else numpy.asarray(value, spec.array_dtype)
            if array.dtype != spec.array_dtype:
                if array.dtype.name != spec.dtype:
                    wanted = spec.dtype if spec.dtype == spec.array_dtype else f"{spec.dtype} or {spec.array_dtype}"
                    raise TypeError(
                        f"input {spec.name} of model {self.name} must be of dtype {wanted}, got {array.dtype}"
                    )
                array = array.view(spec.array_dtype)
            if array.shape != spec.shape:
                raise ValueError(
                    f"input {spec.name} of model {self.name} must be of shape {spec.shape}, got {array.shape}"
                )
            arrays.append(array)
        return arrays

    def _input_at(self, number: int, offset: int) -> NDArray[Any]:
        """Return a view on a slot as input ``number``; views are kept, because slots are used again and again."""
        view = self._input_views.get((number, offset))
        if view is None:
            if len(self._input_views) >= _VIEWS:
                self._input_views.clear()
            spec = self.inputs[number]
            view = self._memory.bytes_at(offset, spec.nbytes).view(spec.array_dtype).reshape(spec.shape)
            self._input_views[number, offset] = view
        return view

    def _has_running(self, count: int) -> bool:
        return self._running >= count

    def _count(self, difference: int) -> None:
        with self._counting:
            self._running += difference

    def _take_slots(self, sizes: list[int]) -> list[int]:
        """Return slots for inputs; if memory is short, wait for runs in flight first."""
        while True:
            running = self._running
            try:
                return self._memory.take(sizes)
            except ArenaFull:
                if not running or self._client.in_own_thread:
                    raise
                self._client.wait_while(partial(self._has_running, running))


class _Run:
    """One run: its input slots until it has ended, and its outputs until the caller has them."""

    __slots__ = ("_abandoned", "_arrays", "_borrowed", "_ended", "_future", "_model", "_unclaimed")

    def __init__(self, model: Model, inputs: Mapping[str, Any]) -> None:
        self._model: Model | None = model
        self._arrays = model._check(inputs)
        self._borrowed: list[tuple[int, int]] = []
        self._future: Future[dict[str, NDArray[Any]]] | None = None
        #: The offsets of the outputs until they are claimed: `results` or `abandon` pops them, once.
        self._unclaimed: deque[list[int]] = deque()
        self._ended = False
        self._abandoned = False

    def begin(self, future: Future[dict[str, NDArray[Any]]] | None) -> Request:
        """Copy inputs to shared memory where needed, and send the run."""
        model = self._owner()
        client, memory = model._client, model._memory
        places = [memory.offset_of(a) if a.flags.c_contiguous else None for a in self._arrays]
        copied = [number for number, place in enumerate(places) if place is None]
        sizes = [self._arrays[number].nbytes for number in copied]
        slots = model._take_slots(sizes) if sizes else []
        self._borrowed = list(zip(slots, sizes, strict=True))
        self._future = future
        model._count(1)
        try:
            for number, offset in zip(copied, slots, strict=True):
                model._input_at(number, offset)[...] = self._arrays[number]
                places[number] = offset
            request = Request(self._settle, self._resolve if future is not None else None)
            return client.begin(Kind.RUN, model._number, places, client.released(), request=request)
        except BaseException:
            if not self._ended:
                model._count(-1)
                # After an interruption it is unknown whether the run was sent, so its slots are not used again.
                self._borrowed = []
            raise

    def results(self, answer: Message) -> dict[str, NDArray[Any]]:
        """Return the outputs of a successful run."""
        model = self._owner()
        self._unclaimed.pop()
        self._model = None
        return {
            spec.name: model._memory.array(offset, spec.shape, spec.array_dtype)
            for spec, offset in zip(model.outputs, answer[2], strict=True)
        }

    def abandon(self) -> None:
        """Release the outputs as soon as they exist."""
        self._abandoned = True
        self._discard()

    def _settle(self, answer: Message) -> None:
        """Free the inputs of a run that has ended. The thread that reads the answer calls this once."""
        model = self._owner()
        self._ended = True
        model._count(-1)
        if answer[0] == Kind.DONE:
            self._unclaimed.append(answer[2])
        for offset, nbytes in self._borrowed:
            model._memory.give(offset, nbytes)
        self._borrowed = []
        self._arrays = []
        if self._abandoned:
            self._discard()

    def _resolve(self, answer: Message) -> None:
        future = self._future
        if future is None:
            return
        if answer[0] == Kind.FAILED:
            future.set_exception(error_from_wire(answer[2]))
        else:
            future.set_result(self.results(answer))

    def _discard(self) -> None:
        model = self._owner()
        try:
            offsets = self._unclaimed.pop()
        except IndexError:
            return
        for offset in offsets:
            model._memory.release(offset)

    def _owner(self) -> Model:
        if self._model is None:
            raise PoolClosed("this run has ended")
        return self._model


def _spec(port: list[Any]) -> TensorSpec:
    from poolrt.workers.desc.data_type import type_name

    name, dims, dtype, nbytes = port
    return TensorSpec(name, tuple(dims), type_name(dtype), nbytes)


def _unload(client: Client, number: int) -> None:
    """Unload a model. Runs in finalizers, so it must not wait, nor fail for a closed pool."""
    client.send_nowait([Kind.UNLOAD, number])
