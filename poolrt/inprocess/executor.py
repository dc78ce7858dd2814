"""`Executor`: run a graph in this process, iteration after iteration, without a pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Never

import numpy as np

from poolrt.cachestore.deferred_dataclass import replace
from poolrt.graph import passes
from poolrt.graph.builder import Graph
from poolrt.graph.constant import Constant, storage_type
from poolrt.graph.constant_name import LEAST_BYTES
from poolrt.graph.cut_outputs import cut_outputs
from poolrt.graph.engine_name import require_engine
from poolrt.graph.reshaping import infer_for_inputs
from poolrt.graph.training import to_training
from poolrt.inprocess.device_context import DeviceContext
from poolrt.runs.run_inputs import describe_names, refuse_unnamed, to_array
from poolrt.workers.desc import type_name
from poolrt.workers.engines.engine import Engine
from poolrt.workers.memory.array_address import address_in_order, address_of
from poolrt.workers.memory.array_room import in_order
from poolrt.workers.streams.stream import Stream

from .compiled_graphs import CompiledGraphs, Shapes, name_of, open_engine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.cachestore.constant_files import ConstantFiles
    from poolrt.graph.ir import GraphIR
    from poolrt.graph.lowered_plan import LoweredPlan
    from poolrt.workers.primitives.provider import PrimitiveProvider

#: ``test`` computes results only, ``train`` also what backward operations need.
PHASES: Final = ("test", "train")
_ARRAY: Final = np.ndarray


class Executor:
    """Runs one graph on engines of this process.

    Compiled graphs, their executors and constants are instances in a device context: made in the first iteration, found in
    all that follow. An input may come in another shape than the graph says, if the graph's shapes follow it; instances are
    then made for that shape, and found again when it comes back. Reorders between layouts, data types and engines are the
    plan's, and steps run as native regions, as on a pool. Constants are brought into their layout once.

    Large constants in the layouts of plans are files that all processes of the node map, as those of sessions are (the setting
    ``constant_files_bytes``).

    Any number of threads may run it; they take turns, unless they share a context that is made for that.
    """

    def __init__(
        self, graph: Graph, engine: Engine | None = None, stream: Stream | None = None, *,
        context: DeviceContext | None = None, phase: str = "test", cache: PrimitiveProvider | None = None,
    ) -> None:  # fmt: skip
        """Execute a graph, as it is now, in ``phase`` ``test`` or ``train``.

        ``engine`` is for nodes that name none; the default is the stream's engine, or else the graph's. ``stream`` is one on
        it; the executor makes one otherwise, and one for each other engine that nodes name. ``context`` keeps the
        instances (default: a new one), ``cache`` the primitives (default: that of the process). Raises ValueError or
        TypeError naming the argument, GraphError if the graph has no output, and EngineUnavailable.
        """
        if not isinstance(graph, Graph):
            raise TypeError(f"graph: expect a Graph, got {type(graph).__name__}")
        for name, given, kind in (
            ("engine", engine, Engine),
            ("stream", stream, Stream),
            ("context", context, DeviceContext),
        ):
            if given is not None and not isinstance(given, kind):
                raise TypeError(f"{name}: expect {kind.__name__}, got {type(given).__name__}")
        if stream is None and context is not None and context.given_stream is not None:
            stream = context.given_stream if engine in (None, context.engine) else None
        if engine is None:
            engine = stream.engine if stream is not None else open_engine(require_engine(graph.engine))
        if stream is not None and stream.engine is not engine:
            raise ValueError(f"stream: expect one on {engine}, got one on {stream.engine}")
        self.graph = graph.name
        self.engine = engine
        self.context = DeviceContext(stream=stream) if context is None else context
        self.phase = phase
        self._cuts: Final = graph.cuts
        self._built: Final = replace(graph.to_ir(), engine=name_of(engine))
        #: Names of the inputs, and data types as graphs and arrays have them.
        self._wanted: Final = [
            (name, self._built.values[value].dtype, storage_type(self._built.values[value].dtype))
            for name, value in self._built.inputs
        ]
        engines = (node.engine for node in self._built.nodes if node.engine)
        constants = self._built.constants.values()
        places = self.context, cache, _constant_files(constants), [name for name, _, _ in self._wanted]
        self._graphs: Final = CompiledGraphs(graph.name, engine, stream, engines, constants, *places)
        self._context: Final = self._graphs.context
        self._training: GraphIR | None = None

    @property
    def phase(self) -> str:
        """``test``: operations are ``forward_inference``. ``train``: those that have a propagation kind ``forward_training``.

        In training, batch normalizations use the statistics of the batch instead of given ones, and no operation is fused.
        The data that operations keep for their backward operations are outputs too, named ``<node>.mean``,
        ``<node>.variance`` and ``<node>.workspace``. Setting anything else raises ValueError.
        """
        return self._phase

    @phase.setter
    def phase(self, phase: str) -> None:
        if phase not in PHASES:
            raise ValueError(f"phase: unknown {phase!r}; known: {', '.join(PHASES)}")
        self._phase = phase

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """The shape of each input by name, as the graph was built."""
        return {name: self._built.values[value].dims for name, value in self._built.inputs}

    def run(self, /, *unnamed: Never, **inputs: Any) -> dict[str, NDArray[Any]]:
        """Execute the graph on one array for each input and return the outputs by name, as new arrays.

        An input has the data type that the graph says (bfloat16 as the uint16 of its bits, or as another library's
        bfloat16), and any shape for which the shapes of all results can be inferred; a value that is no array is converted.
        An array that is C-contiguous and aligned is read where it is and must stay as it is meanwhile. A few kernels read
        behind arrays: for these, one that ends at the end of a page is copied.
        Raises ValueError for a wrong name, TypeError for a wrong data type, GraphError where shapes do not go together,
        LoweringError where no implementation takes them, CreationFailed, KernelFailed naming the step.
        """
        if unnamed:
            refuse_unnamed(f"graph {self.graph}", self.inputs, unnamed)
        outputs = self._graphs.repeat(inputs, self._phase)
        if outputs is None:
            arrays, addresses = self._check(inputs)
            outputs = self._graphs.run(arrays, addresses, self._phase, self._graph_for)
        if self._cuts:
            cut_outputs(outputs, self._cuts)
        return outputs

    def time_steps(self, runs: int, /, **inputs: Any) -> tuple[LoweredPlan, list[list[int]]]:
        """Execute the graph once and then ``runs`` times; return its plan and the times of each step in nanoseconds.

        The times of a step are those of the later runs, in their order; a copy between engines has none. Inputs and errors
        are those of `run`.
        """
        return self._graphs.time_steps(runs, *self._check(inputs), self._phase, self._graph_for)

    def _graph_for(self, shapes: Shapes, phase: str) -> GraphIR:
        """Return the graph for inputs of these shapes and a phase, ready to be lowered."""
        ir = self._built
        if phase == "train":
            if self._training is None:
                self._training = to_training(ir)
            ir = self._training
        if shapes != tuple(ir.values[value].dims for _, value in ir.inputs):
            ir = infer_for_inputs(ir, shapes)
        # Operations that are fused would leave nothing for the backward operation of the second.
        return ir if phase == "train" else passes.optimize(ir)

    def _check(self, inputs: Mapping[str, Any]) -> tuple[list[NDArray[Any]], list[int]]:
        """Return the inputs in order, as arrays of the right data type, C-contiguous and aligned, and their addresses."""
        wanted = self._wanted
        if len(inputs) != len(wanted):
            raise self._wrong_names(inputs)
        arrays, addresses = [], []
        for name, dtype, kind in wanted:
            try:
                array = inputs[name]
            except KeyError:
                raise self._wrong_names(inputs) from None
            address = address_in_order(array) if type(array) is _ARRAY and array.dtype is kind and array.nbytes else 0
            if not address:
                array = _array_in_order(name, array, dtype, kind)
                address = address_of(array)
            arrays.append(array)
            addresses.append(address)
        return arrays, addresses

    def _wrong_names(self, inputs: Mapping[str, Any]) -> ValueError:
        values = [(name, self._built.values[value]) for name, value in self._built.inputs]
        ports = {name: f"{name} {type_name(desc.dtype)}{list(desc.dims)}" for name, desc in values}
        return ValueError(describe_names(f"graph {self.graph}", ports, inputs))


def _constant_files(constants: Iterable[Constant]) -> ConstantFiles | None:
    """Return the files of large constants that processes of the node share, if there are such constants and files."""
    if all(constant.nbytes < LEAST_BYTES for constant in constants):
        return None
    from poolrt.cachestore.constant_files import ConstantFiles
    from poolrt.settings import Settings

    arguments = Settings.load().constant_files_arguments()
    return ConstantFiles(**arguments) if arguments else None


def _array_in_order(name: str, value: Any, dtype: str, kind: np.dtype[Any]) -> NDArray[Any]:
    """Return an input as it is if it is C-contiguous and aligned, else a copy."""
    array = value if isinstance(value, np.ndarray) else to_array(name, value, kind.name)
    if array.dtype != kind:
        if dtype == "bf16" and array.dtype.name == "bfloat16":
            array = array.view(kind)
        elif array.dtype.name == kind.name:
            array = array.astype(kind)  # of another byte order
        else:
            text = f"input {name}: expect dtype {type_name(dtype)}, got {array.dtype}"
            raise TypeError(f"{text}; convert it: array.astype({kind.name!r})")
    if not array.nbytes:
        raise ValueError(f"input {name}: expect sizes of at least 1, got {array.shape}")
    return in_order(array)
