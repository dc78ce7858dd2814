"""A plan in the making: tensors with the memory they lie in, steps, constants, primitives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from poolrt.workers.desc import Arg, MemoryDesc
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.plans.execution_plan import PlaceKind, PlanConstant


@dataclass(slots=True)
class Storage:
    """Memory of one tensor: an input, a constant, or a result that is alive from step ``first`` to step ``last``.

    ``engine`` is where it can be read; every engine gets at what has none.
    """

    kind: PlaceKind
    number: int = -1
    nbytes: int = 0
    first: int = -1
    last: int = -1
    engine: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """A tensor in one layout: which storage holds it, from which byte on, and how it lies there."""

    storage: int
    desc: MemoryDesc
    start: int = 0


@dataclass(frozen=True, slots=True)
class _Step:
    """The execution of a primitive, or without one a crossing from SRC to DST."""

    primitive: int | None
    args: Mapping[int, Version]
    name: str


@dataclass(slots=True)
class PlanBuilder:
    """What lowering builds up."""

    storages: list[Storage] = field(default_factory=list)
    steps: list[_Step] = field(default_factory=list)
    constants: list[PlanConstant] = field(default_factory=list)
    primitives: dict[tuple[PrimitiveDesc, str], int] = field(default_factory=dict)

    def stored(self, storage: Storage, desc: MemoryDesc) -> Version:
        """Add a storage and return the tensor that lies there."""
        self.storages.append(storage)
        return Version(len(self.storages) - 1, desc)

    def constant(self, value: int, raw: int, desc: MemoryDesc, reorder: tuple[PrimitiveDesc, str] | None) -> Version:
        """Add a constant of ``raw`` bytes that a reorder on an engine, where there is one, brings into its layout."""
        number = None if reorder is None else self.number(*reorder)
        self.constants.append(PlanConstant(value, raw, desc.nbytes, number))
        return self.stored(Storage(PlaceKind.CONSTANT, len(self.constants) - 1), desc)

    def home(self, version: Version) -> str:
        """Return the engine on which a tensor can be read, empty where every engine gets at it."""
        return self.storages[version.storage].engine

    def is_constant(self, version: Version) -> bool:
        """Return whether a tensor never changes."""
        return self.storages[version.storage].kind is PlaceKind.CONSTANT

    def given(self, version: Version) -> PlanConstant:
        """Return the constant that a tensor lies in."""
        return self.constants[self.storages[version.storage].number]

    def step(self, name: str, pd: PrimitiveDesc, engine: str, sources: Mapping[int, Version]) -> dict[int, Version]:
        """Add a step that executes a primitive on an engine; return what it writes by execution argument."""
        memories = pd.memories()
        results = {int(arg): self._result(memories[arg], engine) for arg in pd.op.outputs()}
        self._add(_Step(self.number(pd, engine), {**sources, **results}, name), sources.values())
        return results

    def cross(self, version: Version, engine: str) -> Version:
        """Add a crossing to another engine, and return the tensor as that one reads it."""
        found = self._result(version.desc, engine)
        name = f"{self.home(version)} to {engine}"
        self._add(_Step(None, {Arg.SRC: version, Arg.DST: found}, name), [version])
        return found

    def number(self, pd: PrimitiveDesc, engine: str) -> int:
        """Return the number of a primitive on an engine, the same for equal ones."""
        return self.primitives.setdefault((pd, engine), len(self.primitives))

    def _result(self, desc: MemoryDesc, engine: str) -> Version:
        at = len(self.steps)
        return self.stored(Storage(PlaceKind.WORK, -1, desc.nbytes, at, at, engine), desc)

    def _add(self, step: _Step, sources: Iterable[Version]) -> None:
        for version in sources:
            self.storages[version.storage].last = len(self.steps)
        self.steps.append(step)
