"""`Graph`: build a graph of primitives operation by operation, with oneDNN's names and meanings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from poolrt.cachestore.deferred_dataclass import replace
from poolrt.spelling import describe_type
from poolrt.workers.desc import MemoryDesc, type_name
from poolrt.workers.desc.attributes import FPMATH_MODES
from poolrt.workers.desc.typed import shorten, to_integers

from . import passes
from .constant import Constant
from .cut_outputs import Cut, hidden_outputs
from .engine_name import require_engine
from .errors import GraphError
from .graph_state import GraphState
from .ir import GraphIR
from .operations.attentions import Attentions
from .operations.calls import Calls
from .operations.indexing import Indexing
from .operations.normalizations import Normalizations
from .operations.pointwise import Pointwise
from .operations.products import Products
from .operations.rearrangement import Rearrangement
from .operations.recurrent import Recurrent
from .operations.windows import Windows
from .shapes import normalize_axis
from .source_node import SourceNode
from .values import Value, parse_dtype
from .wire import to_wire

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike


class Graph(Windows, Products, Attentions, Pointwise, Normalizations, Recurrent, Rearrangement, Indexing, Calls):
    """A graph of primitives on named inputs and outputs, built once and loaded into a pool.

    Every operation checks shapes and data types at once and returns a `Value`, or a tuple of them. Instead of a tensor
    it also takes a NumPy array, a number or a list of numbers, which becomes a constant of a data type that fits the
    other operands: beside float32, arrays of float64 and float16 are rounded to it, integers accepted if it holds them
    exactly; beside integers, integer arrays keep their own type. Arrays of the type itself are kept without a copy (do
    not change them before the graph is loaded). Tensors are row-major as the user sees them; the plan
    chooses the layouts inside.

    Every operation takes the options of `NodeOptions`: ``name``, ``engine``, ``dtype``, ``scales``, ``zero_points``.
    Every error is a `GraphError` that names operation, node and argument: ``convolution 'conv1': weights: expect 3 input
    channels, got 4``.
    """

    def __init__(
        self, name: str = "graph", engine: str = "cpu", *, implementation: str = "", fpmath_mode: str = "strict"
    ) -> None:
        """Start an empty graph for an engine: ``cpu``, ``opencl`` or ``opencl:<index>``.

        ``implementation`` holds for every operation that is not given its own: see `NodeOptions`. ``fpmath_mode`` is the
        property of this name.
        """
        if not isinstance(name, str):
            raise GraphError(f"name: expect text, got {shorten(name)}; write Graph(name, engine)")
        if not isinstance(implementation, str):
            raise GraphError(f"graph {name!r}: implementation: expect text, got {shorten(implementation)}")
        self.name = name
        self.engine = engine
        self.fpmath_mode = fpmath_mode
        #: Operators of an imported model that were replaced by the functions that define them, with their numbers of nodes.
        self.expanded: dict[str, int] = {}
        #: The nodes of an imported model; empty for a graph that was built by calls.
        self.sources: list[SourceNode] = []
        #: The shapes of an imported model's inputs as it declares them: a size, the name of an open one, or None.
        self.declared_shapes: dict[str, tuple[int | str | None, ...]] = {}
        self._state = GraphState(implementation)
        self._inputs: dict[str, int] = {}
        self._outputs: dict[str, int] = {}
        self._cuts: dict[str, Cut] = {}

    if not TYPE_CHECKING:  # type checkers refuse unknown names themselves

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError that says what an operation is called here."""
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_"):
                from .foreign_names import describe_operation

                text = describe_operation(name, [each for each in dir(type(self)) if not each.startswith("_")])
            raise AttributeError(text, name=name)

    def __repr__(self) -> str:
        counts = f"{len(self._inputs)} inputs, {len(self._state.nodes)} nodes, {len(self.outputs)} outputs"
        return f"<poolrt.Graph {self.name!r}: {counts}>"

    def _repr_html_(self) -> str:
        """Return a table of inputs, nodes and outputs for notebooks."""
        from poolrt.notebooks.html_table import shape_of, table

        descs = self._state.descs

        def row(name: str, operation: str, values: Iterable[int]) -> tuple[str, ...]:
            shapes = ", ".join(shape_of(descs[value].dims) for value in values)
            return name, operation, shapes, ", ".join(dict.fromkeys(type_name(descs[v].dtype) for v in values))

        rows = [row(name, "input", (value,)) for name, value in self._inputs.items()]
        rows += [row(node.name, node.kind, node.outputs) for node in self._state.nodes]
        rows += [row(name, "output", (self._outputs[name],)) for name in self.outputs]
        return table(f"Graph {self.name}, engine {self.engine}", ("name", "operation", "shape", "dtype"), rows)

    @property
    def engine(self) -> str:
        """The engine that the graph is for; setting a name that is no engine's raises GraphError."""
        return self._engine

    @engine.setter
    def engine(self, engine: str) -> None:
        try:
            require_engine(engine)
        except ValueError as error:
            raise GraphError(f"graph {self.name!r}: {error}") from error
        self._engine = engine

    @property
    def fpmath_mode(self) -> str:
        """The data types to which products of float32 (`matmul`, `inner_product`) may round their factors.

        ``strict``: none. ``bf16`` and ``any`` allow bfloat16, which processors with AVX-512 BF16 multiply almost twice as fast:
        constants are then rounded once, and take half the memory. Sums and results stay float32. ``f16`` allows float16, which
        no implementation uses. A mode allows and never requires: on other processors and engines, results are those of
        ``strict``. Setting another name raises GraphError.
        """
        return self._fpmath_mode

    @fpmath_mode.setter
    def fpmath_mode(self, mode: str) -> None:
        if mode not in FPMATH_MODES:
            known = ", ".join(FPMATH_MODES)
            raise GraphError(f"graph {self.name!r}: fpmath_mode: unknown {shorten(mode)}; known: {known}")
        self._fpmath_mode = mode

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """The shape of each input by name, in the order they were made."""
        return {name: self._state.descs[value].dims for name, value in self._inputs.items()}

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """The shape of each output by name, in the order they were made; the largest one if its size is counted."""
        dims = {name: self._state.descs[self._outputs[name]].dims for name in self._seen_outputs()}
        return dims | {name: cut.empty for name, cut in self._cuts.items() if cut.empty is not None}

    @property
    def cuts(self) -> dict[str, Cut]:
        """The outputs whose size a run counts, by name; see `output`."""
        return dict(self._cuts)

    @property
    def input_types(self) -> dict[str, str]:
        """The data type of each input by name: NumPy's name of it, or ``bfloat16``."""
        return {name: type_name(self._state.descs[value].dtype) for name, value in self._inputs.items()}

    @property
    def output_types(self) -> dict[str, str]:
        """The data type of each output by name: NumPy's name of it, or ``bfloat16``."""
        return {name: type_name(self._state.descs[self._outputs[name]].dtype) for name in self._seen_outputs()}

    @property
    def node_count(self) -> int:
        """The number of nodes so far."""
        return len(self._state.nodes)

    def input(self, name: str, shape: Sequence[int], dtype: DTypeLike | str = "float32") -> Value:
        """Add an input that every run gives by this name, of a fixed shape and data type.

        Types are float64, float32, float16, bfloat16 (given to runs as the uint16 of its bits), bool, and int8,
        int16, int32 and int64 with and without a u.
        """
        if not isinstance(name, str):
            raise GraphError(f"input: name: expect text, got {shorten(name)}; write input(name, shape, dtype)")
        if name in self._inputs:
            raise GraphError(f"input {name!r}: there is an input of this name already")
        try:
            desc = MemoryDesc(_fixed_sizes(shape), "f32")
            if min(desc.dims, default=1) < 1:
                raise ValueError(f"expect sizes of at least 1, got {desc.dims}")
        except (TypeError, ValueError) as error:
            raise GraphError(f"input {name!r}: shape: {error}") from error
        try:
            desc = MemoryDesc(desc.dims, parse_dtype(dtype))
        except ValueError as error:
            raise GraphError(f"input {name!r}: {error}") from error
        value = self._state.add_value(desc)
        self._inputs[name] = value.id
        return value

    def constant(self, value: ArrayLike, dtype: DTypeLike | str | None = None) -> Value:
        """Add a constant of a data type: an array's own unless given, and float32, int32 or bool for other numbers."""
        try:
            return self._state.add_constant(value, None if dtype is None else parse_dtype(dtype))
        except ValueError as error:
            raise GraphError(f"constant: {error}") from error

    def output(self, name: str, value: Value, count: Value | None = None, axis: int = 0) -> None:
        """Name a value as a result of every run.

        With a ``count``, a value of one integer, a run returns that many elements along an axis of it, from the first on:
        the results of `non_max_suppression` are of this kind.
        """
        if not isinstance(name, str):
            raise GraphError(f"output: name: expect text, got {shorten(name)}; write output(name, value)")
        if name in self._outputs:
            raise GraphError(f"output {name!r}: there is an output of this name already")
        if getattr(value, "owner", None) is not self._state:
            raise GraphError(f"output {name!r}: value: expect a value of this graph, got {_describe_value(value)}")
        cut = None if count is None else self._cut(name, value, count, axis)
        self._outputs[name] = value.id
        if cut is not None:
            self._cuts[name] = cut

    def empty_output(self, name: str, shape: Sequence[int], dtype: DTypeLike | str = "float32") -> None:
        """Name a tensor without elements as a result of every run; its shape has a size of 0."""
        if not isinstance(name, str):
            raise GraphError(f"empty_output: name: expect text, got {shorten(name)}")
        try:
            sizes = to_integers("shape", shape)
        except ValueError as error:
            raise GraphError(f"empty_output {name!r}: {error}") from error
        if 0 not in sizes or min(sizes) < 0:
            raise GraphError(f"empty_output {name!r}: shape: expect sizes with a 0 among them, got {sizes}")
        # Tensors of a plan have elements: this one is cut off.
        try:
            kind = parse_dtype(dtype)
        except ValueError as error:
            raise GraphError(f"empty_output {name!r}: {error}") from error
        cut_off = self.constant([False] if kind == "bool" else [0], dtype)
        self.output(name, cut_off, self.constant([0], "int64"))
        self._cuts[name] = replace(self._cuts[name], empty=sizes)

    def _cut(self, name: str, value: Value, count: Value, axis: int) -> Cut:
        """Return how an output is cut; its count becomes an output that callers do not see."""
        if getattr(count, "owner", None) is not self._state:
            raise GraphError(f"output {name!r}: count: expect a value of this graph, got {_describe_value(count)}")
        if math.prod(count.shape) != 1 or count.dtype not in ("int32", "int64"):
            text = f"expect one integer of int32 or int64, got {count.dtype}{list(count.shape)}"
            raise GraphError(f"output {name!r}: count: {text}")
        try:
            along = normalize_axis(axis, value.ndim)
        except ValueError as error:
            raise GraphError(f"output {name!r}: {error}") from error
        known = {self._outputs[each.count]: each.count for each in self._cuts.values()}
        hidden = known.get(count.id, f"{name}:count")
        while hidden in self._outputs and hidden not in known.values():
            hidden += "'"
        self._outputs[hidden] = count.id
        return Cut(along, hidden)

    def _seen_outputs(self) -> list[str]:
        hidden = hidden_outputs(self._cuts.values())
        return [name for name in self._outputs if name not in hidden]

    def to_ir(self) -> GraphIR:
        """Return the graph as it was built, as immutable data. Raises GraphError if it has no output."""
        if not self._outputs:
            raise GraphError(f"graph {self.name!r} has no output; name one with output()")
        return self._state.freeze(self.name, require_engine(self.engine), self._inputs, self._outputs, self.fpmath_mode)

    def to_wire(self, optimize: bool = True) -> tuple[dict[str, Any], list[Constant]]:
        """Return the graph as plain data for a message, and its constants in the order of the wire's ``constants``."""
        ir = self.to_ir()
        return to_wire(passes.optimize(ir) if optimize else ir)


def _fixed_sizes(shape: object) -> tuple[int, ...]:
    """Return a shape as a tuple. Raises ValueError that says what is possible if a size is left open."""
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise ValueError(f"expect a sequence of sizes, such as (64, 784), got {shorten(shape)}")
    sizes: tuple[Any, ...] = tuple(shape)
    for place, size in enumerate(sizes):
        if size is None or isinstance(size, str) or size == -1:
            raise ValueError(
                f"dimension {place} of {shorten(sizes)} is open, and a graph has fixed sizes: build a graph for each size, or "
                "pad inputs to the largest; an Executor, without a pool, runs one graph on inputs of any size"
            )
    return sizes


def _describe_value(value: object) -> str:
    return "a value of another graph" if isinstance(value, Value) else f"{describe_type(value)}"
