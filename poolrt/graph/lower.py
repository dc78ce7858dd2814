"""Lower a graph to a plan: choose implementations and layouts, insert reorders, merge equal primitives, place memory.

Pure: no I/O, no compiler, no NumPy. Layouts flow forward: a convolution asks for the layout it likes, everything else
takes what its source has where it can and row-major where it cannot. A reorder is made once for each tensor and layout.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from poolrt.cachestore import Key
from poolrt.workers.desc import Arg, MemoryDesc, OpDesc, PostOp, PrimitiveAttr, Reorder, post_op_src
from poolrt.workers.desc.equivalence import same_bytes
from poolrt.workers.desc.op_desc import OPERATIONS
from poolrt.workers.engines.target import Target
from poolrt.workers.plan import ExecutionPlan, Place, PlaceKind, PlanConstant, Port, Step
from poolrt.workers.primitives.key import primitive_key, source_digest, toolchain
from poolrt.workers.primitives.primitive_desc import (
    PrimitiveDesc,
    UnsupportedPrimitive,
    implementations,
    primitive_desc,
)

from .lifetime import Lifetime, place
from .operations import Candidate, candidates, is_view, post_operations

#: Largest tensor, in bytes: a process can address no larger one.
MAX_TENSOR: Final = 1 << 47


class LoweringError(ValueError):
    """A graph cannot be made ready for an engine. Raised by `lower`; names the node and the reason."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A plan with the distinct primitives it executes and their keys, in the plan's numbering."""

    plan: ExecutionPlan
    primitives: tuple[PrimitiveDesc, ...]
    keys: tuple[Key, ...]


@dataclass(slots=True)
class Storage:
    """Memory of one tensor: an input, a constant, or a result that is alive from step ``first`` to step ``last``."""

    kind: PlaceKind
    number: int = -1
    nbytes: int = 0
    first: int = -1
    last: int = -1


@dataclass(frozen=True, slots=True)
class Version:
    """A tensor in one layout: which storage holds it and how it lies there."""

    storage: int
    desc: MemoryDesc


@dataclass(slots=True)
class _Draft:
    """What lowering builds up."""

    storages: list[Storage] = field(default_factory=list)
    steps: list[tuple[int, dict[int, int], str]] = field(default_factory=list)  # primitive, argument -> storage, name
    constants: list[PlanConstant] = field(default_factory=list)
    primitives: dict[PrimitiveDesc, int] = field(default_factory=dict)
    reordered: dict[tuple[int, MemoryDesc, MemoryDesc], Version] = field(default_factory=dict)
    values: dict[int, Version] = field(default_factory=dict)


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
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise LoweringError(f"malformed graph: {type(error).__name__}: {error}") from error


class _Lowering:
    def __init__(self, wire: dict[str, Any], target: Target) -> None:
        self.wire = wire
        self.target = target
        self.draft = _Draft()
        self.descs = [MemoryDesc(tuple(dims), dtype) for dims, dtype in wire["values"]]
        for value, desc in enumerate(self.descs):
            if desc.nbytes > MAX_TENSOR:
                raise LoweringError(f"value {value} has {desc.nbytes} bytes, more than {MAX_TENSOR}")

    def run(self) -> Lowered:
        draft = self.draft
        for number, (_, value) in enumerate(self.wire["inputs"]):
            draft.values[value] = self._stored(Storage(PlaceKind.INPUT, number), self.descs[value])
        for value, nbytes in self.wire["constants"]:
            if nbytes != self.descs[value].nbytes:
                raise LoweringError(f"constant {value} has {self.descs[value].nbytes} bytes, not {nbytes!r}")
            draft.constants.append(PlanConstant(value, nbytes, nbytes, None))
            draft.values[value] = self._stored(Storage(PlaceKind.CONSTANT, len(draft.constants) - 1), self.descs[value])
        for kind, name, inputs, output, attrs, post_ops in self.wire["nodes"]:
            try:
                draft.values[output] = self._node(kind, name, inputs, self.descs[output], attrs, post_ops)
            except (UnsupportedPrimitive, ValueError) as error:
                raise LoweringError(f"node {name!r} ({kind}): {error}") from error
        outputs = [self._output(number, *output) for number, output in enumerate(self.wire["outputs"])]
        return self._finish(outputs)

    def _node(
        self, kind: str, name: str, inputs: list[int], dst: MemoryDesc, attrs: dict[str, Any], post_ops: list[list[Any]]
    ) -> Version:
        sources = [self.draft.values[i] for i in inputs]
        if is_view(kind):
            return self._view(kind, name, sources[0], dst, attrs)
        fixed = [self._is_constant(source) for source in sources]
        options = list(candidates(kind, [s.desc for s in sources], fixed, dst, attrs))
        extra = [self.draft.values[p[2]] for p in post_ops if p[0] == "binary"]
        if post_ops:
            try:
                return self._primitive(name, options, sources, post_operations(post_ops), extra, references=False)
            except UnsupportedPrimitive:
                pass  # one step after the other, then: faster than a reference implementation of the whole
        result = self._primitive(name, options, sources, (), [])
        for step in post_ops:
            operands = [result, *([self.draft.values[step[2]]] if step[0] == "binary" else [])]
            settings = {"algorithm": step[1]} | ({"alpha": step[2], "beta": step[3]} if step[0] == "eltwise" else {})
            options = list(candidates(step[0], [v.desc for v in operands], [False] * len(operands), dst, settings))
            result = self._primitive(f"{name}/{step[1]}", options, operands, (), [])
        return result

    def _primitive(
        self,
        name: str,
        options: list[Candidate],
        sources: list[Version],
        post_ops: tuple[tuple[str, str, float, float], ...],
        extra: list[Version],
        references: bool = True,
    ) -> Version:
        """Add a step for the first candidate that an implementation accepts; reorder its sources as that one asks.

        A reference implementation is the last resort: of all candidates, and not taken without ``references``.
        """
        refused: UnsupportedPrimitive | None = None
        for reference, option in itertools.product((False, True) if references else (False,), options):
            try:
                pd = self._describe(option.op, post_ops, extra, reference)
            except UnsupportedPrimitive as error:
                refused = error
                continue
            wanted = pd.memories()
            args = {a: self._as(s, wanted[a]).storage for a, s in zip(option.args, sources, strict=True)}
            operands = [post_op_src(i) for i, p in enumerate(pd.attr.post_ops) if p.kind == "binary"]
            args |= {a: self._as(v, wanted[a]).storage for a, v in zip(operands, extra, strict=True)}
            return self._step(name, pd, args)
        raise refused or UnsupportedPrimitive("there is no candidate")

    def _describe(
        self, op: OpDesc, post_ops: tuple[tuple[str, str, float, float], ...], extra: list[Version], reference: bool
    ) -> PrimitiveDesc:
        if not extra:
            return primitive_desc(op, PrimitiveAttr(tuple(PostOp(*p) for p in post_ops)), self.target, reference)
        # The second source of a binary post-op lies as the destination does, which a first round finds out.
        unary = primitive_desc(op, PrimitiveAttr(), self.target, reference)
        layout = unary.memories()[Arg.DST]
        operands = iter(extra)
        chain = tuple(
            PostOp(*p, src1=_like(next(operands).desc, layout) if p[0] == "binary" else None) for p in post_ops
        )
        return primitive_desc(unary.op, PrimitiveAttr(chain), self.target, reference)

    def _view(self, kind: str, name: str, source: Version, dst: MemoryDesc, attrs: dict[str, Any]) -> Version:
        plain = self._as(source, source.desc.with_tag(""))
        if plain.desc.nbytes != dst.nbytes:
            raise ValueError(f"a view of {plain.desc.nbytes} bytes as {dst.nbytes}")
        if kind == "reshape":
            return Version(plain.storage, dst)
        perm = [int(p) for p in attrs["perm"]]
        order = "".join("abcdefghijkl"[perm.index(dim)] for dim in range(len(perm)))
        return self._as(Version(plain.storage, dst.with_tag(order)), dst)

    def _as(self, version: Version, wanted: MemoryDesc) -> Version:
        """Return a tensor in the layout wanted, through a reorder where its bytes differ."""
        if same_bytes(version.desc, wanted):
            return Version(version.storage, wanted)
        found = self.draft.reordered.get((version.storage, version.desc, wanted))
        if found is None:
            pd = primitive_desc(Reorder(version.desc, wanted), PrimitiveAttr(), self.target)
            if self._is_constant(version):
                given = self.draft.constants[self.draft.storages[version.storage].number]
                self.draft.constants.append(
                    PlanConstant(given.value, given.raw_nbytes, wanted.nbytes, self._number(pd))
                )
                found = self._stored(Storage(PlaceKind.CONSTANT, len(self.draft.constants) - 1), wanted)
            else:
                name = f"reorder {version.desc.tag} to {wanted.tag}"
                found = self._step(name, pd, {Arg.SRC: version.storage})
            self.draft.reordered[version.storage, version.desc, wanted] = found
        return found

    def _step(self, name: str, pd: PrimitiveDesc, sources: dict[int, int]) -> Version:
        number = len(self.draft.steps)
        dst = pd.memories()[Arg.DST]
        result = self._stored(Storage(PlaceKind.WORK, nbytes=dst.nbytes, first=number, last=number), dst)
        for storage in sources.values():
            self.draft.storages[storage].last = number
        self.draft.steps.append((self._number(pd), {**sources, Arg.DST: result.storage}, name))
        return result

    def _output(self, number: int, name: str, value: int) -> Port:
        desc = self.descs[value]
        version = self._as(self.draft.values[value], desc)
        storage = self.draft.storages[version.storage]
        if storage.kind is not PlaceKind.WORK or storage.nbytes != desc.nbytes:
            copy = primitive_desc(Reorder(desc, desc), PrimitiveAttr(), self.target)
            version = self._step(f"output {name}", copy, {Arg.SRC: version.storage})
            storage = self.draft.storages[version.storage]
        storage.kind, storage.number = PlaceKind.OUTPUT, number
        return Port(name, desc.dims, desc.dtype, desc.nbytes)

    def _finish(self, outputs: list[Port]) -> Lowered:
        draft = self.draft
        pds, keys, merged = _merged(draft.primitives)
        used, constants = self._used_constants()
        kept = [s for s in draft.storages if s.kind is PlaceKind.WORK]
        offsets, workspace = place([Lifetime(s.nbytes, s.first, s.last) for s in kept])
        if workspace > MAX_TENSOR:
            raise LoweringError(f"its steps need {workspace} bytes of memory at once, more than {MAX_TENSOR}")
        for storage, offset in zip(kept, offsets, strict=True):
            storage.number = offset

        def located(index: int) -> Place:
            storage = draft.storages[index]
            number = used[storage.number] if storage.kind is PlaceKind.CONSTANT else storage.number
            return Place(storage.kind, number)

        steps = tuple(
            Step(merged[primitive], tuple((int(arg), located(s)) for arg, s in args.items()), name)
            for primitive, args, name in draft.steps
        )
        inputs = tuple(
            Port(name, self.descs[v].dims, self.descs[v].dtype, self.descs[v].nbytes) for name, v in self.wire["inputs"]
        )
        constants = tuple(c if c.reorder is None else replace(c, reorder=merged[c.reorder]) for c in constants)
        plan = ExecutionPlan(str(self.wire["engine"]), steps, constants, inputs, tuple(outputs), workspace, len(pds))
        return Lowered(plan, pds, keys)

    def _used_constants(self) -> tuple[dict[int, int], tuple[PlanConstant, ...]]:
        """Return the constants that steps read, renumbered: the row-major form of one that was reordered is left out."""
        read = {
            self.draft.storages[s].number
            for _, args, _ in self.draft.steps
            for s in args.values()
            if self.draft.storages[s].kind is PlaceKind.CONSTANT
        }
        order = sorted(read)
        return {old: new for new, old in enumerate(order)}, tuple(self.draft.constants[i] for i in order)

    def _stored(self, storage: Storage, desc: MemoryDesc) -> Version:
        self.draft.storages.append(storage)
        return Version(len(self.draft.storages) - 1, desc)

    def _number(self, pd: PrimitiveDesc) -> int:
        return self.draft.primitives.setdefault(pd, len(self.draft.primitives))

    def _is_constant(self, version: Version) -> bool:
        return self.draft.storages[version.storage].kind is PlaceKind.CONSTANT


def _merged(primitives: Iterable[PrimitiveDesc]) -> tuple[tuple[PrimitiveDesc, ...], tuple[Key, ...], list[int]]:
    """Return distinct primitives by key, their keys, and for each given one its number among them."""
    numbers: dict[str, int] = {}
    pds: list[PrimitiveDesc] = []
    keys: list[Key] = []
    merged = []
    for pd in primitives:
        key = primitive_key(pd)
        if key.digest not in numbers:
            numbers[key.digest] = len(pds)
            pds.append(pd)
            keys.append(key)
        merged.append(numbers[key.digest])
    return tuple(pds), tuple(keys), merged


def _like(operand: MemoryDesc, layout: MemoryDesc) -> MemoryDesc:
    return operand.with_tag(layout.tag) if operand.ndims == layout.ndims else operand
