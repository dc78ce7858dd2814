"""Lower a graph to a plan: choose kernels, bring operands into the forms that they expect, place memory.

Pure: no I/O, no compiler, no NumPy. Layouts flow forward: a convolution asks for the layout it likes, everything else
takes what its operands have where it can and row-major where it cannot. Views move nothing: they are read where their
source lies, through strides, until somebody wants the elements side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poolrt.workers.desc import MemoryDesc, OpDesc, PrimitiveAttr, Reorder, post_op_src, scales_of, zero_points_of
from poolrt.workers.desc.op_desc import INTERNAL, OPERATIONS
from poolrt.workers.desc.operations.region_loop import RegionLoop
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, implementations, primitive_desc
from poolrt.workers.plans.execution_plan import PlaceKind, Port
from poolrt.workers.primitives.key import source_digest, toolchain

from .choice import Attributes, choose, is_reference
from .engine_name import engines_of, require_engine
from .inference.operands import operand_arguments, result_arguments
from .inference.operations import infer, is_view, op_desc
from .kernel_type import KernelType
from .layout_inserter import HOST, LayoutInserter
from .layouts import candidates
from .lowered_plan import MAX_TENSOR, LoweredPlan, LoweringError, finished
from .plan_builder import PlanBuilder, Storage, Version
from .views import viewed

__all__ = ["MAX_TENSOR", "LoweredPlan", "LoweringError", "lower", "prepare"]


def prepare(engine_kind: str) -> None:
    """Import what lowering for an engine kind needs, and hash its sources: the first graph then waits for neither."""
    for kind in (*OPERATIONS, *INTERNAL):
        implementations(kind, engine_kind)
    source_digest(engine_kind)
    toolchain(engine_kind)


def lower(wire: dict[str, Any], targets: Mapping[str, Target], threads: int = 1) -> LoweredPlan:
    """Return the plan of a graph for engines by name; one of the host, ``cpu``, is always among them.

    ``threads`` are those that a worker runs its CPU steps on. Raises LoweringError naming the node that cannot be lowered.
    """
    try:
        return _Lowering(wire, targets, threads).run()
    except LoweringError:
        raise
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise LoweringError(f"malformed graph: {type(error).__name__}: {error}") from error


class _Lowering:
    def __init__(self, wire: dict[str, Any], targets: Mapping[str, Target], threads: int) -> None:
        self.wire = wire
        self.threads = threads
        self.engine = require_engine(wire.get("engine") or HOST)
        self.targets = {**targets, HOST: targets[HOST].on_threads(threads)} if threads > 1 else targets
        self.draft = PlanBuilder()
        self.inserter = LayoutInserter(self.draft, self.targets)
        self.values: dict[int, Version] = {}
        self.descs = [MemoryDesc(tuple(dims), dtype) for dims, dtype in wire["values"]]
        for value, desc in enumerate(self.descs):
            if desc.nbytes > MAX_TENSOR:
                raise LoweringError(f"value {value} has {desc.nbytes} bytes, more than {MAX_TENSOR}")

    def run(self) -> LoweredPlan:
        draft = self.draft
        for engine in engines_of(self.wire):
            if engine not in self.targets:
                raise LoweringError(f"engine: there is no target of {engine}")
        for number, (_, value) in enumerate(self.wire["inputs"]):
            self.values[value] = draft.stored(Storage(PlaceKind.INPUT, number), self.descs[value])
        for value, nbytes in self.wire["constants"]:
            if nbytes != self.descs[value].nbytes:
                raise LoweringError(f"constant {value} has {self.descs[value].nbytes} bytes, not {nbytes!r}")
            self.values[value] = draft.constant(value, nbytes, self.descs[value], None)
        for kind, name, inputs, outputs, attrs, post_ops, quantisation, engine, implementation in self.wire["nodes"]:
            where = engine and require_engine(engine), str(implementation)
            node = _Node(kind, name, *where, attrs, post_ops, quantisation)
            try:
                found = self._node(node, inputs, [self.descs[value] for value in outputs])
            except (UnsupportedPrimitive, ValueError) as error:
                raise LoweringError(f"node {name!r} ({kind}): {error}") from error
            self.values.update(zip(outputs, found, strict=True))
        outputs = [self._output(number, *output) for number, output in enumerate(self.wire["outputs"])]
        ports = [_port(name, self.descs[value]) for name, value in self.wire["inputs"]]
        return finished(draft, self.engine, ports, outputs, self._loop())

    def _loop(self) -> int | None:
        """Return the number of the region loop, where several threads run steps on the host."""
        if self.threads == 1 or all(engine != HOST for _, engine in self.draft.primitives):
            return None
        return self.draft.number(primitive_desc(RegionLoop(), PrimitiveAttr(), self.targets[HOST]), HOST)

    def _node(self, node: _Node, inputs: list[int], results: list[MemoryDesc]) -> list[Version]:
        sources = [self.values[i] for i in inputs]
        plain = [self.descs[i] for i in inputs]
        if is_view(node.kind):
            _require(results, list(infer(node.kind, plain, node.attrs)))
            return [self._view(node.kind, sources[0], results[0], node.attrs)]
        op = op_desc(node.kind, plain, node.attrs, results[0].dtype)
        memories = op.memories()
        _require(results, [memories[arg].with_tag("") for arg in result_arguments(op)])
        if isinstance(op, Reorder) and not (node.post_ops or node.quantisation):
            return [self.inserter.bring(sources[0], node.engine or self.engine, _layout(op, sources[0].desc))]
        operands = [self.values[p[2]] for p in node.post_ops if p[0] == "binary"]
        attributes = Attributes(node.post_ops, [v.desc for v in operands], node.quantisation)
        fused = self._expected(op, sources, attributes, node)
        if node.post_ops and (isinstance(fused, UnsupportedPrimitive) or is_reference(fused.pd)):
            alone = self._expected(op, sources, attributes.without_post_ops(), node)
            slow = isinstance(alone, UnsupportedPrimitive) or is_reference(alone.pd)
            if not isinstance(alone, UnsupportedPrimitive) and (isinstance(fused, UnsupportedPrimitive) or not slow):
                found = self._step(node.name, alone, sources, [], node.quantisation)
                return [self._followed(node, found[0], results[0]), *found[1:]]
        if isinstance(fused, UnsupportedPrimitive):
            raise fused
        return self._step(node.name, fused, sources, operands, node.quantisation)

    def _expected(
        self, op: OpDesc, sources: Sequence[Version], attributes: Attributes, node: _Node
    ) -> KernelType | UnsupportedPrimitive:
        """Return the kernel to use, or why there is none.

        The graph's engine is where a node runs if it can, and the host where it cannot; a node's own is an order.
        """
        refused: UnsupportedPrimitive | None = None
        for place in dict.fromkeys((node.engine,) if node.engine else (self.engine, HOST)):
            options = candidates(op, [s.desc for s in sources], [self.draft.is_constant(s) for s in sources])
            try:
                return KernelType(place, choose(options, attributes, self.targets[place], node.implementation))
            except UnsupportedPrimitive as error:
                refused = refused or error
        return refused or UnsupportedPrimitive("there is no engine")

    def _step(
        self,
        name: str,
        expected: KernelType,
        sources: Sequence[Version],
        operands: Sequence[Version],
        quantisation: Sequence[Sequence[Any]],
    ) -> list[Version]:
        """Add a step; its operands are brought into the forms that it expects. Return its results in order."""
        pd = expected.pd
        given = dict(zip(operand_arguments(pd.op), sources, strict=True))
        chain = [post_op_src(i) for i, p in enumerate(pd.attr.post_ops) if p.kind == "binary"]
        given |= dict(zip(chain, operands, strict=True))
        for what, arg, _, value in quantisation:
            given[(scales_of if what == "scales" else zero_points_of)(arg)] = self.values[value]
        forms = expected.arguments()
        brought = {arg: self.inserter.bring(version, expected.engine, forms[arg]) for arg, version in given.items()}
        results = self.draft.step(name, pd, expected.engine, brought)
        return [results[arg] for arg in result_arguments(pd.op)]

    def _followed(self, node: _Node, result: Version, dst: MemoryDesc) -> Version:
        """Add a step for each post-op of a node that no implementation fuses."""
        for kind, algorithm, *rest in node.post_ops:
            sources = [result, *([self.values[rest[0]]] if kind == "binary" else [])]
            attrs = {"algorithm": algorithm}
            if kind == "eltwise":
                attrs |= {"alpha": rest[0], "beta": rest[1]}
            plain = [dst, *(self.descs[rest[0]] for _ in sources[1:])]
            expected = self._expected(op_desc(kind, plain, attrs), sources, Attributes(), node)
            if isinstance(expected, UnsupportedPrimitive):
                raise expected
            (result,) = self._step(f"{node.name}/{algorithm}", expected, sources, [], [])
        return result

    def _view(self, kind: str, source: Version, dst: MemoryDesc, attrs: dict[str, Any]) -> Version:
        """Return how a view reads its source, which is brought into row-major order only where there is no such way."""
        found = viewed(kind, source.desc, dst.dims, attrs)
        if found is None:
            engine = self.draft.home(source) or self.engine
            source = self.inserter.bring(source, engine, source.desc.with_tag(""))
            found = viewed(kind, source.desc, dst.dims, attrs)
        if found is None:
            raise ValueError(f"there is no view of {source.desc} as {dst}")
        desc, start = found
        return Version(source.storage, desc, source.start + start)

    def _output(self, number: int, name: str, value: int) -> Port:
        desc, version = self.descs[value], self.values[value]
        engine = self.draft.home(version) or self.engine
        version = self.inserter.bring(version, engine, desc)
        storage = self.draft.storages[version.storage]
        if storage.kind is not PlaceKind.WORK or version.start or storage.nbytes != desc.nbytes:
            version = self.inserter.copied(version, engine, f"output {name}")
            storage = self.draft.storages[version.storage]
        storage.kind, storage.number = PlaceKind.OUTPUT, number
        return _port(name, desc)


@dataclass(frozen=True, slots=True)
class _Node:
    """A node as on the wire."""

    kind: str
    name: str
    engine: str
    implementation: str
    attrs: dict[str, Any]
    post_ops: list[list[Any]]
    quantisation: list[list[Any]]


def _layout(op: Reorder, lying: MemoryDesc) -> MemoryDesc:
    """Return the layout that a reorder node asks for: its tag, or else that of its source where it is dense."""
    return op.dst.with_tag(lying.tag) if op.dst.is_plain and not lying.strides else op.dst


def _require(told: Sequence[MemoryDesc], inferred: Sequence[MemoryDesc]) -> None:
    if list(told) != list(inferred):
        raise ValueError(f"dst: expect {', '.join(map(str, inferred))}, got {', '.join(map(str, told))}")


def _port(name: str, desc: MemoryDesc) -> Port:
    return Port(name, desc.dims, desc.dtype, desc.nbytes)
