"""A model whose runs are split over workers: each computes some samples of the batch, and the results are joined."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from poolrt.errors import PoolClosed
from poolrt.graph import passes
from poolrt.graph.batch_part import carrying_inputs, part_of_batch
from poolrt.graph.errors import GraphError
from poolrt.graph.wire import to_wire
from poolrt.loads import loading
from poolrt.model import Model, TensorSpec

from .joined_future import JoinedFuture
from .run_inputs import check_inputs, seconds_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.connection.session import Session
    from poolrt.graph.builder import Graph
    from poolrt.graph.ir import GraphIR
    from poolrt.plan_listing import PlanListing

_Outputs = dict[str, "NDArray[Any]"]


def load_split(
    session: Session,
    graph: Graph,
    progress: bool | Callable[[int, int, list[str]], None] | None,
    priority: int = 0,
) -> Model:
    """Load a graph for parts of its batch, one for each worker; see `Pool.load`. Raises GraphError if it cannot be split."""
    ir = graph.to_ir()
    samples = _samples(ir, graph)
    workers = min(int(session.facts["workers"]), samples)
    if workers == 1:
        return loading.load(session, graph, progress, priority)
    sizes = [samples // workers + (index < samples % workers) for index in range(workers)]
    models = {}
    for size in dict.fromkeys(sizes):
        wire, constants = to_wire(passes.optimize(part_of_batch(ir, samples, size)))
        models[size] = loading.load_wire(session, wire, constants, {}, progress, priority)
        models[size]._batch = 1  # the parts of a run go to different workers
    carrying = frozenset(carrying_inputs(ir, samples))
    shapes = {name: ir.values[value].dims for name, value in (*ir.inputs, *ir.outputs)}
    return SplitModel([models[size] for size in sizes], sizes, carrying, shapes)


def _samples(ir: GraphIR, graph: Graph) -> int:
    where = f"graph {ir.name!r}: split_batch:"
    if graph.cuts:
        raise GraphError(f"{where} the size of output {next(iter(graph.cuts))!r} is known only after a run")
    if not ir.inputs:
        raise GraphError(f"{where} there is no input")
    name, value = ir.inputs[0]
    dims = ir.values[value].dims
    if not dims:
        raise GraphError(f"{where} the first input, {name!r}, is one number and holds no batch")
    return dims[0]


class SplitModel(Model):
    """A loaded graph whose runs take all workers: a `Model` made by ``Pool.load(split_batch=True)``.

    ``inputs`` and ``outputs`` are those of the whole batch. Outputs that carry the batch are new arrays of this process.
    """

    def __init__(
        self,
        models: Sequence[Model],
        sizes: Sequence[int],
        carrying: frozenset[str],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        """Take the model of each part, with its number of samples, the inputs that hold the batch, and all whole shapes."""
        first = models[0]
        self._models, self._sizes, self._carrying = tuple(models), tuple(sizes), carrying
        self.name = first.name
        self.inputs = tuple(_whole(spec, shapes) for spec in first.inputs)
        self.outputs = tuple(_whole(spec, shapes) for spec in first.outputs)
        distinct = dict.fromkeys(models)
        primitives: dict[str, int] = {}
        for model in distinct:
            for source, count in model.report["primitives"].items():
                primitives[source] = primitives.get(source, 0) + count
        self.report = {**first.report, "primitives": primitives, "load_s": sum(m.report["load_s"] for m in distinct)}
        self._loaded = first._loaded

    def run(self, /, *unnamed: Never, timeout: Any = None, **inputs: Any) -> _Outputs:
        """Run as `Model.run`, on all workers."""
        self._refuse_unnamed(unnamed)
        limit_s = None if timeout is None else self._limit_of(timeout, inputs)
        deadline = None if limit_s is None else time.monotonic() + limit_s
        futures = self._submit(inputs)
        try:
            return self._joined(_take_results(futures, deadline))
        except TimeoutError:
            if limit_s is None or deadline is None or time.monotonic() < deadline:
                raise
            raise self._timed_out(limit_s) from None
        finally:
            for future in futures:
                future.cancel()

    def submit(self, /, *unnamed: Never, timeout: Any = None, **inputs: Any) -> Future[_Outputs]:
        """Start a run as `Model.submit` does, on all workers. `cancel` also takes a run that workers have begun."""
        self._refuse_unnamed(unnamed)
        limit_s = None if timeout is None else self._limit_of(timeout, inputs)
        return JoinedFuture(self._submit(inputs, limit_s), self._joined)

    def map(
        self, batches: Iterable[Mapping[str, Any]], in_flight: int | None = None, timeout: float | None = None
    ) -> Iterator[_Outputs]:
        """Run on each of ``batches`` as `Model.map` does."""
        limit = 8 if in_flight is None else in_flight
        if limit < 1:
            raise ValueError(f"in_flight must be at least 1, got {limit}")
        limit_s = None if timeout is None else seconds_of(timeout)
        under_way: deque[deque[Future[_Outputs]]] = deque()
        try:
            for inputs in batches:
                if len(under_way) >= limit:
                    yield self._joined(_take_results(under_way.popleft()))
                under_way.append(self._submit(inputs, limit_s))
            while under_way:
                yield self._joined(_take_results(under_way.popleft()))
        except GeneratorExit:
            # The collector may drop the iterator in a thread that holds a lock.
            self._models[0]._loaded.client.abandoned.leave(deque(chain.from_iterable(under_way)))
            raise
        except BaseException:
            for future in chain.from_iterable(under_way):
                future.cancel()
            raise

    def plan(self) -> PlanListing:
        """Return the steps of a run on the first worker, which has the largest part of the batch."""
        return self._models[0].plan()

    def close(self) -> None:
        """Free the memory of all parts. Runs in flight end as usual; further ones raise PoolClosed."""
        for model in self._models:
            model.close()

    def _submit(self, inputs: Mapping[str, Any], limit_s: float | None = None) -> deque[Future[_Outputs]]:
        """Start the run of each part."""
        if self._models[0]._loaded.closed:
            raise PoolClosed(f"model {self.name} is closed: load its graph again")
        names = [spec.name for spec in self.inputs]
        arrays = dict(zip(names, check_inputs(self.name, self.inputs, inputs), strict=True))
        futures: deque[Future[_Outputs]] = deque()
        begin = 0
        try:
            for model, size in zip(self._models, self._sizes, strict=True):
                part = {n: array[begin : begin + size] if n in self._carrying else array for n, array in arrays.items()}
                futures.append(model._submit_within(part, limit_s))
                begin += size
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return futures

    def _joined(self, parts: Sequence[_Outputs]) -> _Outputs:
        found = {}
        for spec in self.outputs:
            arrays = [part[spec.name] for part in parts]
            found[spec.name] = arrays[0] if arrays[0].shape == spec.shape else np.concatenate(arrays)
        return found


def _take_results(futures: deque[Future[_Outputs]], deadline: float | None = None) -> list[_Outputs]:
    """Return the results of the parts of a run. Raises the first error, whose traceback leads to no future that has it."""
    found = []
    while futures:
        future = futures.popleft()
        try:
            found.append(future.result(None if deadline is None else max(deadline - time.monotonic(), 0)))
        except BaseException:
            future.cancel()
            raise
        finally:
            del future
    return found


def _whole(spec: TensorSpec, shapes: Mapping[str, tuple[int, ...]]) -> TensorSpec:
    """Return a tensor of the whole batch from that of a part."""
    shape = shapes[spec.name]
    return TensorSpec(
        spec.name, shape, spec.dtype, spec.nbytes // max(spec.shape[0], 1) * shape[0] if shape else spec.nbytes
    )
