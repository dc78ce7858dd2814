"""The builder of a plan: collects steps, constants, primitives, and the storage of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.workers.desc import Arg, MemoryDesc
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.plans.execution_plan import PlaceKind, PlanConstant

#: Characters of a node's name that a plan keeps, for people.
_NAME: Final = 200


@dataclass(slots=True)
class Storage:
    """Memory of one tensor: an input, a constant, or a result that is alive from step ``first`` to step ``last``.

    ``engine`` is the one that can read it; every engine can if it is empty. A tensor that is part of a larger one begins
    ``offset`` bytes after the beginning of storage ``whole``, and has no memory of its own.
    """

    kind: PlaceKind
    number: int = -1
    nbytes: int = 0
    first: int = -1
    last: int = -1
    engine: str = ""
    whole: int = -1
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Version:
    """A tensor in one layout: the number of its storage, its descriptor, and the byte at which it starts."""

    storage: int
    desc: MemoryDesc
    start: int = 0


@dataclass(frozen=True, slots=True)
class _Step:
    """The execution of a primitive, or a reorder from SRC to DST between engines where ``primitive`` is None."""

    primitive: int | None
    args: Mapping[int, Version]
    name: str


@dataclass(slots=True)
class PlanBuilder:
    """The parts of a plan so far."""

    storages: list[Storage] = field(default_factory=list)
    steps: list[_Step] = field(default_factory=list)
    constants: list[PlanConstant] = field(default_factory=list)
    primitives: dict[tuple[PrimitiveDesc, str], int] = field(default_factory=dict)

    def add_storage(self, storage: Storage, desc: MemoryDesc) -> Version:
        """Add a storage and return the tensor in it."""
        self.storages.append(storage)
        return Version(len(self.storages) - 1, desc)

    def add_constant(
        self, value: int, raw: int, desc: MemoryDesc, reorder: tuple[PrimitiveDesc, str] | None = None
    ) -> Version:
        """Add a constant of ``raw`` bytes; the reorder, if any, on its engine brings it into its layout."""
        number = None if reorder is None else self.number_of(*reorder)
        self.constants.append(PlanConstant(value, raw, desc.nbytes, number))
        return self.add_storage(Storage(PlaceKind.CONSTANT, len(self.constants) - 1), desc)

    def storage_of(self, version: Version) -> Storage:
        """Return the storage of a tensor, or of the whole of which it is a part."""
        return self.storages[self.locate(version).storage]

    def locate(self, version: Version) -> Version:
        """Return a tensor as a part of the storage that has memory of its own."""
        storage, start = version.storage, version.start
        while self.storages[storage].whole >= 0:
            start += self.storages[storage].offset
            storage = self.storages[storage].whole
        return Version(storage, version.desc, start)

    def engine_of(self, version: Version) -> str:
        """Return the engine that can read a tensor; empty if every engine can."""
        return self.storage_of(version).engine

    def is_constant(self, version: Version) -> bool:
        """Return whether a tensor never changes."""
        return self.storage_of(version).kind is PlaceKind.CONSTANT

    def constant_of(self, version: Version) -> PlanConstant:
        """Return the constant whose storage a tensor is in."""
        return self.constants[self.storage_of(version).number]

    def add_step(self, name: str, pd: PrimitiveDesc, engine: str, sources: Mapping[int, Version]) -> dict[int, Version]:
        """Add a step that executes a primitive on an engine; return its results by execution argument."""
        memories = pd.memories()
        results = {int(arg): self._add_result(memories[arg], engine) for arg in pd.op.outputs()}
        self._append(_Step(self.number_of(pd, engine), {**sources, **results}, name[:_NAME]), sources.values())
        return results

    def join(self, desc: MemoryDesc, parts: Sequence[tuple[Version, int]], engine: str) -> Version:
        """Return a tensor whose parts, each at an offset in bytes, are where the steps before write them: nothing is copied.

        The steps write the parts to the memory of the whole from now on. Each part `can_join`.
        """
        whole = self._add_result(desc, engine)
        to = self.storages[whole.storage]
        for part, offset in parts:
            storage = self.storages[part.storage]
            storage.whole, storage.offset = whole.storage, offset
            to.first = min(to.first, storage.first)
        return whole

    def can_join(self, version: Version, engine: str) -> bool:
        """Return whether a tensor is all that a step of an engine writes to its memory, and not yet a part of another one."""
        storage = self.storages[version.storage]
        result = storage.kind is PlaceKind.WORK and storage.engine == engine and storage.whole < 0
        # A reorder between engines may leave its result where its source is.
        return result and storage.nbytes == version.desc.nbytes and self.steps[storage.first].primitive is not None

    def add_cross_engine_reorder(self, version: Version, engine: str) -> Version:
        """Add a reorder of a tensor to another engine; return its result."""
        result = self._add_result(version.desc, engine)
        name = f"{self.engine_of(version)} to {engine}"
        self._append(_Step(None, {Arg.SRC: version, Arg.DST: result}, name), [version])
        return result

    def number_of(self, pd: PrimitiveDesc, engine: str) -> int:
        """Return the number of a primitive on an engine; equal ones have the same."""
        return self.primitives.setdefault((pd, engine), len(self.primitives))

    def _add_result(self, desc: MemoryDesc, engine: str) -> Version:
        at = len(self.steps)
        return self.add_storage(Storage(PlaceKind.WORK, -1, desc.nbytes, at, at, engine), desc)

    def _append(self, step: _Step, sources: Iterable[Version]) -> None:
        for version in sources:
            self.storage_of(version).last = len(self.steps)
        self.steps.append(step)
