"""A plan in the making: tensors with the memory they lie in, steps, constants, primitives; then its places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from poolrt.cachestore import Key
from poolrt.workers.desc import MemoryDesc
from poolrt.workers.plan import ExecutionPlan, Place, PlaceKind, PlanConstant, Port, Step
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.primitives.primitive_desc import PrimitiveDesc

from .lifetime import Lifetime, place

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
    """A tensor in one layout: which storage holds it, from which byte on, and how it lies there."""

    storage: int
    desc: MemoryDesc
    start: int = 0


@dataclass(slots=True)
class PlanDraft:
    """What lowering builds up."""

    storages: list[Storage] = field(default_factory=list)
    steps: list[tuple[int, dict[int, Version], str]] = field(default_factory=list)  # primitive, arguments, name
    constants: list[PlanConstant] = field(default_factory=list)
    primitives: dict[PrimitiveDesc, int] = field(default_factory=dict)

    def stored(self, storage: Storage, desc: MemoryDesc) -> Version:
        """Add a storage and return the tensor that lies there."""
        self.storages.append(storage)
        return Version(len(self.storages) - 1, desc)

    def constant(self, value: int, raw: int, desc: MemoryDesc, reorder: PrimitiveDesc | None) -> Version:
        """Add a constant of ``raw`` bytes that a reorder, where there is one, brings into its layout."""
        number = None if reorder is None else self.number(reorder)
        self.constants.append(PlanConstant(value, raw, desc.nbytes, number))
        return self.stored(Storage(PlaceKind.CONSTANT, len(self.constants) - 1), desc)

    def is_constant(self, version: Version) -> bool:
        """Return whether a tensor never changes."""
        return self.storages[version.storage].kind is PlaceKind.CONSTANT

    def given(self, version: Version) -> PlanConstant:
        """Return the constant that a tensor lies in."""
        return self.constants[self.storages[version.storage].number]

    def step(self, name: str, pd: PrimitiveDesc, sources: Mapping[int, Version]) -> dict[int, Version]:
        """Add a step that executes a primitive; return what it writes by execution argument."""
        at = len(self.steps)
        memories = pd.memories()
        results = {}
        for arg in pd.op.outputs():
            storage = Storage(PlaceKind.WORK, nbytes=memories[arg].nbytes, first=at, last=at)
            results[int(arg)] = self.stored(storage, memories[arg])
        for version in sources.values():
            self.storages[version.storage].last = at
        self.steps.append((self.number(pd), {**sources, **results}, name))
        return results

    def number(self, pd: PrimitiveDesc) -> int:
        """Return the number of a primitive, the same for equal ones."""
        return self.primitives.setdefault(pd, len(self.primitives))

    def finish(self, engine: str, inputs: Sequence[Port], outputs: Sequence[Port]) -> Lowered:
        """Merge equal primitives, leave out constants that no step reads, place memory."""
        pds, keys, merged = _merged(self.primitives)
        used, constants = self._used_constants()
        kept = [s for s in self.storages if s.kind is PlaceKind.WORK]
        offsets, workspace = place([Lifetime(s.nbytes, s.first, s.last) for s in kept])
        if workspace > MAX_TENSOR:
            raise LoweringError(f"its steps need {workspace} bytes of memory at once, more than {MAX_TENSOR}")
        for storage, offset in zip(kept, offsets, strict=True):
            storage.number = offset

        def located(version: Version) -> Place:
            storage = self.storages[version.storage]
            number = used[storage.number] if storage.kind is PlaceKind.CONSTANT else storage.number
            return Place(storage.kind, number, version.start)

        steps = tuple(
            Step(merged[primitive], tuple((int(arg), located(v)) for arg, v in args.items()), name)
            for primitive, args, name in self.steps
        )
        constants = tuple(c if c.reorder is None else replace(c, reorder=merged[c.reorder]) for c in constants)
        plan = ExecutionPlan(engine, steps, constants, tuple(inputs), tuple(outputs), workspace, len(pds))
        return Lowered(plan, pds, keys)

    def _used_constants(self) -> tuple[dict[int, int], tuple[PlanConstant, ...]]:
        """Return the constants that steps read, renumbered: the row-major form of one that was reordered is left out."""
        read = {
            self.storages[version.storage].number
            for _, args, _ in self.steps
            for version in args.values()
            if self.is_constant(version)
        }
        order = sorted(read)
        return {old: new for new, old in enumerate(order)}, tuple(self.constants[i] for i in order)


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
