"""Lower a graph to a plan: choose kernels, bring operands into the forms that they expect, place memory.

Pure: no I/O, no compiler, no NumPy. Layouts flow forward: a convolution asks for the layout that is best for it; every
other operation accepts the layout of its operands if it can, and is row-major otherwise. Views move nothing: a step
reads the source through strides, unless it needs the elements side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from poolrt.cachestore.deferred_dataclass import replace
from poolrt.workers.desc import (
    Arg,
    Concat,
    Convolution,
    InnerProduct,
    Matmul,
    MemoryDesc,
    OpDesc,
    PrimitiveAttr,
    Reorder,
    post_op_src,
)
from poolrt.workers.desc.op_desc import INTERNAL, OPERATIONS
from poolrt.workers.desc.operations.region_loop import RegionLoop
from poolrt.workers.desc.quantisation import KINDS
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import (
    PrimitiveDesc,
    UnsupportedPrimitive,
    implementations,
    primitive_desc,
)
from poolrt.workers.plans.execution_plan import PlaceKind, Port
from poolrt.workers.primitives.sources import source_digest
from poolrt.workers.primitives.toolchain import toolchain

from .choice import Attributes, choose, is_reference
from .errors import LoweringError
from .inference.operands import operand_arguments, result_arguments
from .inference.operations import is_view, op_desc
from .ir import MAX_TENSOR, Node, QuantisationUse, TypedGraph
from .layout_inserter import HOST, LayoutInserter
from .layouts import candidates
from .lowered_plan import LoweredPlan, finish_plan
from .plan_builder import PlanBuilder, Storage, Version
from .views import describe_seen, describe_view, find_parts

#: Elements of a row of a view with gaps from which on one reorder to rows without them and another one into blocks of channels
#: take less time than a single one.
_SEEN_ROW: Final = 16
#: An engine by name, and the primitive that it executes.
_Chosen: TypeAlias = tuple[str, PrimitiveDesc]


def prepare(engine_kind: str) -> Iterator[None]:
    """Import the implementations of an engine kind and hash their sources before the first graph needs them.

    Each of some hundred steps takes up to milliseconds; a graph needs few of them.
    """
    toolchain(engine_kind)
    yield
    for kind in (*OPERATIONS, *INTERNAL):
        for implementation in implementations(kind, engine_kind):
            source_digest(engine_kind, kind, implementation)
            yield


def lower(graph: TypedGraph, targets: Mapping[str, Target], threads: int = 1) -> LoweredPlan:
    """Return the plan of a graph for engines by name; the host, ``cpu``, is always among them.

    ``threads`` is the number that a worker runs its CPU steps on. The graph is consistent: `Graph` and `wire_parser`
    ensure that. Raises LoweringError naming the node that no implementation supports.
    """
    return _Lowering(graph, targets, threads).run()


class _Lowering:
    def __init__(self, graph: TypedGraph, targets: Mapping[str, Target], threads: int) -> None:
        self.graph = graph
        self.threads = threads
        self.targets = {**targets, HOST: targets[HOST].on_threads(threads)} if threads > 1 else targets
        self.builder = PlanBuilder()
        self.inserter = LayoutInserter(self.builder, self.targets)
        self.versions: dict[int, Version] = {}

    def run(self) -> LoweredPlan:
        graph, builder = self.graph, self.builder
        for engine in (graph.engine, *(node.engine for node in graph.nodes if node.engine)):
            if engine not in self.targets:
                raise LoweringError(f"engine: {engine} has no target")
        for value, desc in graph.values.items():
            if desc.nbytes > MAX_TENSOR:
                raise LoweringError(f"value {value} has {desc.nbytes} bytes, more than {MAX_TENSOR}")
        for number, (_, value) in enumerate(graph.inputs):
            self.versions[value] = builder.add_storage(Storage(PlaceKind.INPUT, number), graph.values[value])
        for value in graph.constants:
            self.versions[value] = builder.add_constant(value, graph.values[value].nbytes, graph.values[value])
        for node in graph.nodes:
            try:
                self.versions.update(zip(node.outputs, self._lower_node(node), strict=True))
            except UnsupportedPrimitive as error:
                raise LoweringError(f"node {node.name!r} ({node.kind}): {error}") from error
        outputs = [self._lower_output(number, *output) for number, output in enumerate(graph.outputs)]
        inputs = [self._port(*port) for port in graph.inputs]
        return finish_plan(builder, graph.engine, inputs, outputs, self._number_of_loop())

    def _number_of_loop(self) -> int | None:
        """Return the number of the region loop, which runs the host's steps if a worker has several threads."""
        if self.threads == 1 or all(engine != HOST for _, engine in self.builder.primitives):
            return None
        return self.builder.number_of(primitive_desc(RegionLoop(), PrimitiveAttr(), self.targets[HOST]), HOST)

    def _lower_node(self, node: Node) -> list[Version]:
        descs = self.graph.values
        sources, dst = [self.versions[value] for value in node.inputs], descs[node.output]
        if is_view(node.kind):
            return [self._view(node, sources[0], dst)]
        op = op_desc(node.kind, [descs[value] for value in node.inputs], node.attrs, dst.dtype)
        if isinstance(op, Reorder) and not (node.post_ops or node.quantisation or op.wraps):
            return [
                self.inserter.bring(
                    sources[0], node.engine or self.graph.engine, _layout(op, sources[0].desc), node.label
                )
            ]
        operands = [self.versions[use.value] for use in node.post_ops if use.value is not None]
        plain = Attributes(quantisation=self._attr(op, node))
        attributes = replace(plain, post_ops=node.post_ops, operands=[version.desc for version in operands])
        fused = self._choose(op, sources, attributes, node)
        seen = _what_windows_see(op, sources[0], fused)
        if seen is not None:
            op, view = seen
            if op.groups == 1 and op.dst.dims[-1] >= _SEEN_ROW:
                view = self.inserter.bring(view, _require(fused)[0], op.src)
            # The reorder may as well write row-major rows, which groups gain nothing from.
            brought = replace(view, desc=op.src) if op.groups == 1 else view
            fused = self._choose(op, [brought, *sources[1:]], attributes, node)
            sources[0] = view
        # Scale and zero point of a result come after its post-ops: steps of their own would get it too late.
        apart = node.post_ops and not node.quantisation
        if apart and (isinstance(fused, UnsupportedPrimitive) or is_reference(fused[1])):
            alone = self._choose(op, sources, plain, node)
            slow = isinstance(alone, UnsupportedPrimitive) or is_reference(alone[1])
            if not isinstance(alone, UnsupportedPrimitive) and (isinstance(fused, UnsupportedPrimitive) or not slow):
                first, *others = self._add_step(node.label, alone, sources, [], node.quantisation)
                return [self._lower_post_ops(node, first), *others]
        return self._add_step(node.label, _require(fused), sources, operands, node.quantisation)

    def _attr(self, op: OpDesc, node: Node) -> PrimitiveAttr:
        """Return the attributes of a node without its post-ops; only products read the graph's mode of floating point."""
        attr = node.quantisation_attr()
        return replace(attr, fpmath_mode=self.graph.fpmath_mode) if isinstance(op, Matmul | InnerProduct) else attr

    def _choose(
        self, op: OpDesc, sources: Sequence[Version], attributes: Attributes, node: Node
    ) -> _Chosen | UnsupportedPrimitive:
        """Return the engine and primitive to use, or the reason why there is none.

        A node's own engine is an order. Otherwise a node runs on the graph's engine if it can, else on the host.
        """
        refused: UnsupportedPrimitive | None = None
        for place in dict.fromkeys((node.engine,) if node.engine else (self.graph.engine, HOST)):
            constant = [self.builder.is_constant(source) for source in sources]
            target = self.targets[place]
            level = target.isa if target.engine_kind == HOST else ""
            options = candidates(op, [source.desc for source in sources], constant, level)
            try:
                return place, choose(options, attributes, target, node.implementation)
            except UnsupportedPrimitive as error:
                refused = refused or error
        return refused or UnsupportedPrimitive("there is no engine")

    def _add_step(
        self,
        name: str,
        chosen: _Chosen,
        sources: Sequence[Version],
        operands: Sequence[Version] = (),
        quantisation: Sequence[QuantisationUse] = (),
    ) -> list[Version]:
        """Add a step and the reorders that bring its operands into the forms it expects. Return its results."""
        engine, pd = chosen
        given = dict(zip(operand_arguments(pd.op), sources, strict=True))
        chain = [post_op_src(i) for i, p in enumerate(pd.attr.post_ops) if p.kind == "binary"]
        given |= dict(zip(chain, operands, strict=True))
        for use in quantisation:
            given[KINDS[use.kind].argument(use.arg)] = self.versions[use.value]
        forms = pd.memories()
        brought = {arg: self.inserter.bring(version, engine, forms[arg]) for arg, version in given.items()}
        if isinstance(pd.op, Concat) and engine == HOST:
            joined = self._join(pd.op, list(brought.values()))
            if joined is not None:
                return [joined]
        results = self.builder.add_step(name, pd, engine, brought)
        return [results[arg] for arg in result_arguments(pd.op)]

    def _join(self, op: Concat, sources: Sequence[Version]) -> Version | None:
        """Return the concatenation without a step if each source can be computed in its place, None otherwise."""
        offsets = find_parts(op)
        storages = {version.storage for version in sources}
        if offsets is None or len(storages) < len(sources):
            return None
        if not all(self.builder.can_join(version, HOST) for version in sources):
            return None
        return self.builder.join(op.dst, list(zip(sources, offsets, strict=True)), HOST)

    def _lower_post_ops(self, node: Node, result: Version) -> Version:
        """Add a step for each post-op of a node that no implementation fuses."""
        for use in node.post_ops:
            values = [node.output, *([] if use.value is None else [use.value])]
            sources = [result, *(self.versions[value] for value in values[1:])]
            op = op_desc(use.kind, [self.graph.values[value] for value in values], use.attributes())
            chosen = _require(self._choose(op, sources, Attributes(), node))
            (result,) = self._add_step(f"{node.name}/{use.algorithm}", chosen, sources)
        return result

    def _view(self, node: Node, source: Version, dst: MemoryDesc) -> Version:
        """Return a view of its source, which is made row-major first if the view has no strides on it."""
        found = describe_view(node, source.desc, dst.dims)
        if found is None:
            engine = self.builder.engine_of(source) or self.graph.engine
            source = self.inserter.bring(source, engine, source.desc.with_tag(""))
            found = describe_view(node, source.desc, dst.dims)
        if found is None:
            raise RuntimeError(f"node {node.name!r}: there is no view of {source.desc} as {dst}")
        desc, start = found
        return Version(source.storage, desc, source.start + start)

    def _lower_output(self, number: int, name: str, value: int) -> Port:
        desc, version = self.graph.values[value], self.versions[value]
        engine = self.builder.engine_of(version) or self.graph.engine
        try:
            version = self.inserter.bring(version, engine, desc)
            storage = self.builder.storage_of(version)
            if storage.kind is not PlaceKind.WORK or version.start or storage.nbytes != desc.nbytes:
                version = self.inserter.copy(version, engine, f"output {name}")
                storage = self.builder.storage_of(version)
        except UnsupportedPrimitive as error:
            raise LoweringError(f"output {name!r}: {error}") from error
        storage.kind, storage.number = PlaceKind.OUTPUT, number
        return self._port(name, value)

    def _port(self, name: str, value: int) -> Port:
        desc = self.graph.values[value]
        return Port(name, desc.dims, desc.dtype, desc.nbytes)


def _what_windows_see(
    op: OpDesc, source: Version, chosen: _Chosen | UnsupportedPrimitive
) -> tuple[Convolution, Version] | None:
    """Return a chosen convolution as one of a view of its source, without the elements that no window sees, and that view.

    None unless windows have one element, some elements are between them, and the source is reordered anyway.
    """
    if not isinstance(op, Convolution) or isinstance(chosen, UnsupportedPrimitive):
        return None
    view = describe_seen(op, source.desc)
    if view is None or chosen[1].memories()[Arg.SRC] == source.desc:
        return None
    seen = replace(op, src=MemoryDesc(view.dims, view.dtype), strides=(1,) * len(op.strides))
    return seen, Version(source.storage, view, source.start)


def _require(chosen: _Chosen | UnsupportedPrimitive) -> _Chosen:
    if isinstance(chosen, UnsupportedPrimitive):
        raise chosen
    return chosen


def _layout(op: Reorder, current: MemoryDesc) -> MemoryDesc:
    """Return the layout that a reorder node asks for: its tag, or else that of its source if that is dense."""
    return op.dst.with_tag(current.tag) if op.dst.is_plain and not current.strides else op.dst
