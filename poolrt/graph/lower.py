"""Lower a graph to a plan: choose implementations and layouts, insert reorders, merge equal primitives, place memory.

Pure: no I/O, no compiler, no NumPy. Layouts flow forward: a convolution asks for the layout it likes, everything else
takes what its operands have where it can and row-major where it cannot. Views move nothing: they are read where their
source lies, through strides, until somebody wants the elements side by side. A reorder is made once for each tensor and
layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from poolrt.workers.desc import (
    Arg,
    MemoryDesc,
    OpDesc,
    PrimitiveAttr,
    Reorder,
    post_op_src,
    scales_of,
    zero_points_of,
)
from poolrt.workers.desc.equivalence import same_bytes
from poolrt.workers.desc.op_desc import OPERATIONS
from poolrt.workers.engines.target import Target
from poolrt.workers.plan import PlaceKind, Port
from poolrt.workers.primitives.key import source_digest, toolchain
from poolrt.workers.primitives.primitive_desc import (
    PrimitiveDesc,
    UnsupportedPrimitive,
    implementations,
    primitive_desc,
)

from .choice import Attributes, choose, is_reference
from .inference.operands import operand_arguments, result_arguments
from .inference.operations import infer, is_view, op_desc
from .inference.result import Result
from .layouts import candidates
from .plan_draft import MAX_TENSOR, Lowered, LoweringError, PlanDraft, Storage, Version
from .views import viewed

__all__ = ["MAX_TENSOR", "Lowered", "LoweringError", "lower", "prepare"]


def prepare(engine_kind: str) -> None:
    """Import what lowering for an engine kind needs, and hash its sources: the first graph then waits for neither."""
    for kind in OPERATIONS:
        implementations(kind, engine_kind)
    source_digest(engine_kind)
    toolchain(engine_kind)


def lower(wire: dict[str, Any], target: Target) -> Lowered:
    """Return the plan of a graph for a target. Raises LoweringError naming the node that cannot be lowered."""
    try:
        return _Lowering(wire, target).run()
    except LoweringError:
        raise
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise LoweringError(f"malformed graph: {type(error).__name__}: {error}") from error


class _Lowering:
    def __init__(self, wire: dict[str, Any], target: Target) -> None:
        self.wire = wire
        self.target = target
        self.draft = PlanDraft()
        self.values: dict[int, Version] = {}
        self.reordered: dict[tuple[Version, MemoryDesc], Version] = {}
        self.descs = [MemoryDesc(tuple(dims), dtype) for dims, dtype in wire["values"]]
        for value, desc in enumerate(self.descs):
            if desc.nbytes > MAX_TENSOR:
                raise LoweringError(f"value {value} has {desc.nbytes} bytes, more than {MAX_TENSOR}")

    def run(self) -> Lowered:
        draft = self.draft
        for number, (_, value) in enumerate(self.wire["inputs"]):
            self.values[value] = draft.stored(Storage(PlaceKind.INPUT, number), self.descs[value])
        for value, nbytes in self.wire["constants"]:
            if nbytes != self.descs[value].nbytes:
                raise LoweringError(f"constant {value} has {self.descs[value].nbytes} bytes, not {nbytes!r}")
            self.values[value] = draft.constant(value, nbytes, self.descs[value], None)
        for kind, name, inputs, outputs, attrs, post_ops, quantisation, engine in self.wire["nodes"]:
            try:
                if engine not in ("", self.wire["engine"]):
                    raise ValueError(f"engine: a graph for {self.wire['engine']} has no step on {engine}")
                found = self._node(kind, name, inputs, [self.descs[v] for v in outputs], attrs, post_ops, quantisation)
            except (UnsupportedPrimitive, ValueError) as error:
                raise LoweringError(f"node {name!r} ({kind}): {error}") from error
            self.values.update(zip(outputs, found, strict=True))
        outputs = [self._output(number, *output) for number, output in enumerate(self.wire["outputs"])]
        ports = [_port(name, self.descs[value]) for name, value in self.wire["inputs"]]
        return draft.finish(str(self.wire["engine"]), ports, outputs)

    def _node(
        self,
        kind: str,
        name: str,
        inputs: list[int],
        results: list[MemoryDesc],
        attrs: dict[str, Any],
        post_ops: list[list[Any]],
        quantisation: list[list[Any]],
    ) -> list[Version]:
        sources = [self.values[i] for i in inputs]
        plain = [self.descs[i] for i in inputs]
        wanted = Result(results[0].dims, results[0].dtype)
        if is_view(kind):
            self._require(results, list(infer(kind, plain, attrs, wanted)))
            return [self._view(kind, sources[0], results[0], attrs)]
        op = op_desc(kind, plain, attrs, wanted)
        memories = op.memories()
        self._require(results, [memories[arg].with_tag("") for arg in result_arguments(op)])
        if isinstance(op, Reorder) and not (post_ops or quantisation):
            return [self._as(sources[0], self._reordered_to(sources[0], op))]
        operands = [self.values[p[2]] for p in post_ops if p[0] == "binary"]
        attributes = Attributes(post_ops, [v.desc for v in operands], quantisation)
        fused = self._chosen(op, sources, attributes)
        if post_ops and (fused is None or is_reference(fused)):
            alone = self._chosen(op, sources, attributes.without_post_ops())
            if alone is not None and (fused is None or not is_reference(alone)):
                found = self._step(name, alone, sources, [], quantisation)
                return [self._followed(name, found[0], post_ops, results[0]), *found[1:]]
        if fused is None:
            fused = choose(self._candidates(op, sources), attributes, self.target)
        return self._step(name, fused, sources, operands, quantisation)

    def _chosen(self, op: OpDesc, sources: Sequence[Version], attributes: Attributes) -> PrimitiveDesc | None:
        try:
            return choose(self._candidates(op, sources), attributes, self.target)
        except UnsupportedPrimitive:
            return None

    def _candidates(self, op: OpDesc, sources: Sequence[Version]) -> Iterator[OpDesc]:
        return candidates(op, [s.desc for s in sources], [self.draft.is_constant(s) for s in sources])

    def _step(
        self,
        name: str,
        pd: PrimitiveDesc,
        sources: Sequence[Version],
        operands: Sequence[Version],
        quantisation: Sequence[Sequence[Any]],
    ) -> list[Version]:
        """Add a step; its sources are reordered as the implementation asks. Return its results in order."""
        given = dict(zip(operand_arguments(pd.op), sources, strict=True))
        chain = [post_op_src(i) for i, p in enumerate(pd.attr.post_ops) if p.kind == "binary"]
        given |= dict(zip(chain, operands, strict=True))
        for what, arg, _, value in quantisation:
            given[(scales_of if what == "scales" else zero_points_of)(arg)] = self.values[value]
        wanted = pd.memories()
        results = self.draft.step(name, pd, {arg: self._as(version, wanted[arg]) for arg, version in given.items()})
        return [results[arg] for arg in result_arguments(pd.op)]

    def _followed(self, name: str, result: Version, post_ops: Sequence[Sequence[Any]], dst: MemoryDesc) -> Version:
        """Add a step for each post-op of a node that no implementation fuses."""
        for kind, algorithm, *rest in post_ops:
            sources = [result, *([self.values[rest[0]]] if kind == "binary" else [])]
            attrs = {"algorithm": algorithm}
            if kind == "eltwise":
                attrs |= {"alpha": rest[0], "beta": rest[1]}
            plain = [dst, *(self.descs[rest[0]] for _ in sources[1:])]
            op = op_desc(kind, plain, attrs)
            pd = choose(self._candidates(op, sources), Attributes(), self.target)
            (result,) = self._step(f"{name}/{algorithm}", pd, sources, [], [])
        return result

    def _view(self, kind: str, source: Version, dst: MemoryDesc, attrs: dict[str, Any]) -> Version:
        """Return how a view reads its source, which is brought into row-major order only where there is no such way."""
        found = viewed(kind, source.desc, dst.dims, attrs)
        if found is None:
            source = self._as(source, source.desc.with_tag(""))
            found = viewed(kind, source.desc, dst.dims, attrs)
        if found is None:
            raise ValueError(f"there is no view of {source.desc} as {dst}")
        desc, start = found
        return Version(source.storage, desc, source.start + start)

    def _reordered_to(self, source: Version, op: Reorder) -> MemoryDesc:
        """Return the layout that a reorder node asks for: a tag, or else that of its source where it is dense."""
        keeps = op.dst.is_plain and not source.desc.strides
        return op.dst.with_tag(source.desc.tag) if keeps else op.dst

    def _as(self, version: Version, wanted: MemoryDesc) -> Version:
        """Return a tensor in the layout and data type wanted, through a reorder where its bytes differ."""
        if same_bytes(version.desc, wanted):
            return Version(version.storage, wanted, version.start)
        found = self.reordered.get((version, wanted))
        if found is None:
            pd = primitive_desc(Reorder(version.desc, wanted), PrimitiveAttr(), self.target)
            if self.draft.is_constant(version) and self._is_whole(version):
                given = self.draft.given(version)
                found = self.draft.constant(given.value, given.raw_nbytes, wanted, pd)
            else:
                name = f"reorder {version.desc.tag} to {wanted.tag}"
                if version.desc.dtype != wanted.dtype:
                    name = f"reorder {version.desc.dtype} to {wanted.dtype}"
                found = self.draft.step(name, pd, {Arg.SRC: version})[Arg.DST]
            self.reordered[version, wanted] = found
        return found

    def _is_whole(self, version: Version) -> bool:
        """Return whether a constant is as it was given, so that it can be reordered once for all."""
        given = self.draft.given(version)
        return given.reorder is None and version.start == 0 and version.desc.nbytes == given.nbytes

    def _output(self, number: int, name: str, value: int) -> Port:
        desc = self.descs[value]
        version = self._as(self.values[value], desc)
        storage = self.draft.storages[version.storage]
        if storage.kind is not PlaceKind.WORK or version.start or storage.nbytes != desc.nbytes:
            copy = primitive_desc(Reorder(desc, desc), PrimitiveAttr(), self.target)
            version = self.draft.step(f"output {name}", copy, {Arg.SRC: version})[Arg.DST]
            storage = self.draft.storages[version.storage]
        storage.kind, storage.number = PlaceKind.OUTPUT, number
        return _port(name, desc)

    def _require(self, told: Sequence[MemoryDesc], inferred: Sequence[MemoryDesc]) -> None:
        if list(told) != list(inferred):
            raise ValueError(f"dst: expect {', '.join(map(str, inferred))}, got {', '.join(map(str, told))}")


def _port(name: str, desc: MemoryDesc) -> Port:
    return Port(name, desc.dims, desc.dtype, desc.nbytes)
