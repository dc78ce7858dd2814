"""The plans of a session, one for each set of sizes: in this process, or on a pool.

Guarantees: a plan is made when its sizes first come, once, by one of the threads that need it, while the others wait; runs of
plans that exist do not wait for it. Plans beyond the bound of bytes are dropped, those used longest ago first.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from poolrt.cachestore.deferred_namedtuple import NamedTuple
from poolrt.cachestore.forked_locks import freed_in_children
from poolrt.cachestore.lru import Lru
from poolrt.graph import passes
from poolrt.graph.constant import Constant
from poolrt.graph.cut_outputs import Cut, cut_outputs
from poolrt.inprocess.compiled_graphs import CompiledGraphs, open_engine
from poolrt.inprocess.device_context import DeviceContext
from poolrt.workers.memory.array_address import address_of
from poolrt.workers.memory.array_room import in_order
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream

from .session_model import SessionModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.cachestore.constant_files import ConstantFiles
    from poolrt.graph.builder import Graph
    from poolrt.graph.ir import GraphIR
    from poolrt.inprocess.compiled_graphs import MakeGraph, Shapes
    from poolrt.model import Model
    from poolrt.pool import Pool
    from poolrt.workers.engines.engine import Engine
    from poolrt.workers.primitives.provider import PrimitiveProvider

    Arrays = Mapping[str, NDArray[Any]]

#: The end of a variant's name whose graphs are lowered as they were imported.
_PLAIN: Final = "plain"
#: Sets of sizes whose outputs to cut are kept; importing the model again finds those of others.
_CUTS: Final = 1024


class Source(Protocol):
    """A model, or a part of one, for which plans are made. Each of a session has another ``label``."""

    @property
    def label(self) -> str: ...

    def graph(self, shapes: Mapping[str, Sequence[int]], values: Arrays) -> Graph:
        """Return the graph for inputs of these shapes and values. Raises InvalidGraph and NotImplemented."""
        ...


class Plans(Protocol):
    """Runs a model on inputs of any sizes. ``values`` are the inputs that its shapes depend on: a plan is for one set of them."""

    def run(self, source: Source, inputs: Arrays, values: Arrays, into: Arrays) -> Mapping[str, NDArray[Any]]:
        """Return the outputs of a part by name, bfloat16 as uint16; one that is written into its array of ``into`` is this array.

        Raises InvalidGraph and NotImplemented if there is no plan for these sizes, and the errors of executions.
        """
        ...

    def repeat(self, feed: Mapping[str, Any]) -> Mapping[str, NDArray[Any]] | None:
        """Return the outputs of the whole model if this run is like the last one; None, and nothing is done, else."""
        ...

    def prepare(self, source: Source, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Make the plan for these sizes. Raises as `run`."""
        ...


class _Last(NamedTuple):
    """The last run of the whole model if a plan was not all that it needed.

    It has what repeats the plan, with the variant, the shapes of the inputs, the inputs that are constants of the plan, and the
    outputs to cut.
    """

    repeat: object
    variant: str
    shapes: Sequence[tuple[str, tuple[int, ...]]]
    values: Sequence[tuple[str, np.dtype[Any], tuple[int, ...], bytes]]
    cuts: Mapping[str, Cut]


class LocalPlans:
    """Plans in this process. Threads run at once; each has the workspace of a plan to itself, which counts in the bytes."""

    def __init__(
        self,
        model: SessionModel,
        engine: str,
        stream: Stream | None,
        threads: int,
        optimize: bool,
        plan_bytes: int,
        cache: PrimitiveProvider | None,
        files: ConstantFiles | None,
    ) -> None:
        """Compute on ``stream``, or on a new one of the engine; ``threads`` is then the number of threads of a processor.

        ``files`` has the weights that processes of the node share.
        """
        self._model = model
        self._optimize = optimize
        #: Outputs whose size a run counts, by the shapes and the variant of a graph; unused until a graph has some.
        self._cuts: Final = Lru[tuple["Shapes", str], dict[str, Cut]](_CUTS)
        self._has_cuts = False
        self._last: _Last | None = None
        self._plan_bytes = plan_bytes
        self._stream = stream
        self._engine = open_engine(engine) if stream is None else stream.engine
        self._threads = threads if stream is None and self._engine.kind == "cpu" else 1
        self._cache = cache
        self._files = files
        self._lock = freed_in_children(threading.Lock())
        self._begin()

    def run(self, source: Source, inputs: Arrays, values: Arrays, into: Arrays) -> Mapping[str, NDArray[Any]]:
        arrays = [in_order(_plain(array)) for array in inputs.values()]
        make = partial(self._graph, source, tuple(inputs), values)
        plain = {name: _plain(array) for name, array in into.items()}
        variant = self._variant(source, values)
        names = None if source.label else tuple(inputs)
        graphs = self._graphs_here()
        outputs: dict[str, NDArray[Any]] = graphs.run(arrays, [*map(address_of, arrays)], variant, make, plain, names)
        if self._has_cuts or values:
            shapes = tuple(array.shape for array in arrays)
            cuts = self._find_cuts(shapes, variant, make) if self._has_cuts else {}
            cut_outputs(outputs, cuts)
            if not source.label:
                fixed = [(name, array.dtype, array.shape, array.tobytes()) for name, array in values.items()]
                self._last = _Last(graphs.repeat, variant, [*zip(inputs, shapes, strict=True)], fixed, cuts)
        return {name: into[name] if plain.get(name) is array else array for name, array in outputs.items()}

    def repeat(self, feed: Mapping[str, Any]) -> Mapping[str, NDArray[Any]] | None:
        repeat, last = self._graphs_here().repeat, self._last
        if last is None or last.repeat is not repeat:
            return None if self._has_cuts else repeat(feed, "" if self._optimize else _PLAIN)
        left = dict(feed)
        for name, dtype, dims, content in last.values:
            array = left.pop(name, None)
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != dims:
                return None
            if array.tobytes() != content:
                return None
        outputs = repeat(left, last.variant)
        if outputs is None:
            return None
        for name, dims in last.shapes:
            # Another thread's run may have come between the last one and its cuts, which are for shapes.
            if left[name].shape != dims:
                return None
        cut_outputs(outputs, last.cuts)
        return outputs

    def prepare(self, source: Source, shapes: Mapping[str, tuple[int, ...]]) -> None:
        make = partial(self._graph, source, tuple(shapes), {})
        self._graphs_here().find(tuple(shapes.values()), self._variant(source, {}), make)

    def _begin(self) -> None:
        stream = self._stream
        if self._threads > 1:
            stream = _new_stream(self._engine, self._threads)
        constants = [Constant(array) for array in self._model.initializers.values()]
        self.context = DeviceContext(capacity_bytes=self._plan_bytes, shared=True)
        places = self.context, self._cache, self._files
        self._graphs = CompiledGraphs(self._model.name, self._engine, stream, (), constants, *places)
        self._process = os.getpid()

    def _graphs_here(self) -> CompiledGraphs:
        """Return the graphs of this process. A forked one has no threads of its parent's pool, so it makes its own."""
        if self._threads > 1 and self._process != os.getpid():
            with self._lock:
                if self._process != os.getpid():
                    self._begin()
        return self._graphs

    def _variant(self, source: Source, values: Arrays) -> str:
        return f"{source.label}{digest(values)}{'' if self._optimize else _PLAIN}"

    def _graph(self, source: Source, names: tuple[str, ...], values: Arrays, shapes: Shapes, variant: str) -> GraphIR:
        graph = source.graph(dict(zip(names, shapes, strict=True)), values)
        if graph.cuts or self._has_cuts:
            self._cuts.put((shapes, variant), graph.cuts)
            self._has_cuts = True
        ir = graph.to_ir()
        return passes.optimize(ir) if self._optimize else ir

    def _find_cuts(self, shapes: Shapes, variant: str, make: MakeGraph) -> dict[str, Cut]:
        """Return the outputs of a graph to cut; they may have been dropped although its plan is kept."""
        found = self._cuts.get((shapes, variant))
        while found is None:
            make(shapes, variant)
            found = self._cuts.get((shapes, variant))
        return found


class PoolPlans:
    """Plans on a pool, each a model there. Weights count in the bytes of every model, although those in files are shared."""

    def __init__(self, model: SessionModel, pool: Pool, plan_bytes: int) -> None:
        self._model = model
        self._pool = pool
        self._plan_bytes = plan_bytes
        self._lock = freed_in_children(threading.Lock())
        self._making: dict[tuple[Any, ...], threading.Lock] = {}
        #: Models with their bytes, the one used longest ago first.
        self._models: OrderedDict[tuple[Any, ...], tuple[Model, int]] = OrderedDict()

    def run(self, source: Source, inputs: Arrays, values: Arrays, into: Arrays) -> Mapping[str, NDArray[Any]]:
        shapes = {name: array.shape for name, array in inputs.items()}
        outputs = self._find(source, shapes, values).run(**{name: _plain(array) for name, array in inputs.items()})
        # Outputs are in the pool's memory, of which there is only so much: callers of sessions keep what they get.
        return {name: np.array(array) for name, array in outputs.items()}

    def repeat(self, feed: Mapping[str, Any]) -> Mapping[str, NDArray[Any]] | None:
        return None

    def prepare(self, source: Source, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._find(source, shapes, {})

    def _find(self, source: Source, shapes: Mapping[str, tuple[int, ...]], values: Arrays) -> Model:
        key = source.label, tuple(shapes.values()), digest(values)
        found = self._known(key)
        if found is not None:
            return found
        with self._lock:
            making = self._making.setdefault(key, freed_in_children(threading.Lock()))
        with making:
            try:
                found = self._known(key)
                return self._load(key, source, shapes, values) if found is None else found
            finally:
                with self._lock:
                    self._making.pop(key, None)

    def _load(
        self, key: tuple[Any, ...], source: Source, shapes: Mapping[str, tuple[int, ...]], values: Arrays
    ) -> Model:
        graph = source.graph(shapes, values)
        nbytes = sum(constant.nbytes for constant in graph.to_ir().constants.values())
        model = self._pool.load(graph)
        nbytes += sum(spec.nbytes for spec in (*model.inputs, *model.outputs))
        with self._lock:
            self._models[key] = model, nbytes
            while len(self._models) > 1 and sum(each for _, each in self._models.values()) > self._plan_bytes:
                # It is unloaded when the last thread that runs it has ended.
                self._models.popitem(last=False)
        return model

    def _known(self, key: tuple[Any, ...]) -> Model | None:
        with self._lock:
            if key not in self._models:
                return None
            self._models.move_to_end(key)
            return self._models[key][0]


def digest(values: Arrays) -> str:
    """Return a text that distinguishes arrays by name, shape, type and content; nothing for no arrays."""
    if not values:
        return ""
    state = sha256()
    for name in sorted(values):
        array = values[name]
        head = f"{len(name)} {name} {array.dtype.str} {array.shape} {array.nbytes} "
        state.update(head.encode())
        state.update(array.tobytes())
    return state.hexdigest()


def count_threads(asked: int) -> int:
    """Return the number of threads for ``intra_op_num_threads``: 0 is one for each processor of this process."""
    return asked or len(os.sched_getaffinity(0))


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as graphs take it: bfloat16 as uint16."""
    return array.view(np.uint16) if array.dtype.kind == "V" and array.dtype.name == "bfloat16" else array


def _new_stream(engine: Engine, threads: int) -> Stream:
    """Return a stream on a processor with threads of its own."""
    from poolrt.workers.threadpools.native import NativePool

    attr = StreamAttr("cpu")
    attr.set_threadpool(NativePool(threads))
    return Stream(engine, attr)
