"""A plan: a graph lowered for engines, as the data that a plan executor runs.

Steps run in order, each on one engine. Every argument of a step has a *place*: an input, an output, a constant, or an
offset in the workspace of its engine, which each executor owns. Every engine can access inputs, outputs and constants;
another engine reads a result in a workspace only after a *cross-engine reorder*. Constants are stored once for all
workers, in the layout that the plan chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from poolrt.cachestore.deferred_dataclass import dataclass


class PlaceKind(IntEnum):
    """Where the memory of an argument is."""

    INPUT = 0
    OUTPUT = 1
    CONSTANT = 2
    WORK = 3


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an argument: the number of an input, output or constant, or a byte offset in the workspace.

    The argument begins ``start`` bytes after the beginning of that memory.
    """

    kind: PlaceKind
    value: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The execution of primitive number ``primitive`` on placed arguments; ``name`` is the graph's name for it."""

    primitive: int
    args: tuple[tuple[int, Place], ...]
    name: str


@dataclass(frozen=True, slots=True)
class CrossEngineReorder:
    """``nbytes`` at ``source`` on one engine become readable at ``destination``, in the workspace of another.

    Engines are the plan's numbers. Step ``until`` is the last that reads the destination. The source does not change before
    it, so that engines which work on the same memory need no copy.
    """

    source: Place
    source_engine: int
    destination: Place
    destination_engine: int
    nbytes: int
    until: int
    name: str


@dataclass(frozen=True, slots=True)
class PlanConstant:
    """A constant: value id in the graph, bytes as given, and if its layout differs, the reorder that writes ``nbytes``."""

    value: int
    raw_nbytes: int
    nbytes: int
    reorder: int | None


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a plan, always row-major."""

    name: str
    dims: tuple[int, ...]
    dtype: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """A plan without the entries of its primitives; sizes in bytes.

    ``workspaces`` has one size for each of ``engines``, ``primitives`` the number of its engine for each primitive, and
    ``nested`` the numbers of its nested primitives, all below its own; it is empty if no primitive nests another. ``loop``
    is the number of the region loop that the threads of a worker run, None if a worker has one thread. ``texts`` are the
    texts of verbose lines by primitive, empty if there are none.
    """

    engines: tuple[str, ...]
    steps: tuple[Step | CrossEngineReorder, ...]
    constants: tuple[PlanConstant, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    workspaces: tuple[int, ...]
    primitives: tuple[int, ...]
    nested: tuple[tuple[int, ...], ...] = ()
    loop: int | None = None
    texts: tuple[str, ...] = ()

    def nested_in(self, primitive: int) -> tuple[int, ...]:
        """Return the numbers of the primitives that are nested in a primitive."""
        return self.nested[primitive] if self.nested else ()

    def text_of(self, primitive: int) -> str | None:
        """Return the text of verbose lines about a primitive, or None without lines."""
        return self.texts[primitive] if self.texts else None

    def __post_init__(self) -> None:
        """Raise ValueError if a step names a primitive, engine or place that the plan does not have."""
        if not self.engines or len(self.workspaces) != len(self.engines):
            raise ValueError(f"{len(self.workspaces)} workspaces for {len(self.engines)} engines")
        if any(not 0 <= engine < len(self.engines) for engine in self.primitives):
            raise ValueError("a primitive is for an engine that the plan does not have")
        self._check_nested()
        if self.texts and len(self.texts) != len(self.primitives):
            raise ValueError(f"{len(self.texts)} texts for {len(self.primitives)} primitives")
        if self.loop is not None and not 0 <= self.loop < len(self.primitives):
            raise ValueError(f"the region loop is primitive {self.loop} of {len(self.primitives)}")
        for constant in self.constants:
            if constant.reorder is not None and not 0 <= constant.reorder < len(self.primitives):
                raise ValueError(f"constant {constant.value} names primitive {constant.reorder}")
        for step in self.steps:
            if isinstance(step, CrossEngineReorder):
                self._check_reorder(step)
            elif not 0 <= step.primitive < len(self.primitives):
                raise ValueError(f"step {step.name!r} names primitive {step.primitive} of {len(self.primitives)}")
            else:
                for arg, place in step.args:
                    if self._bytes_from(place, self.primitives[step.primitive]) < 0:
                        raise ValueError(f"step {step.name!r}, argument {arg}: {place} is out of range")

    def _check_nested(self) -> None:
        if self.nested and len(self.nested) != len(self.primitives):
            raise ValueError(f"{len(self.nested)} lists of nested primitives for {len(self.primitives)} primitives")
        for primitive, numbers in enumerate(self.nested):
            for number in numbers:
                if not 0 <= number < primitive or self.primitives[number] != self.primitives[primitive]:
                    raise ValueError(f"primitive {number} cannot be nested in primitive {primitive}")

    def _check_reorder(self, step: CrossEngineReorder) -> None:
        engines = (step.source_engine, step.destination_engine)
        if any(not 0 <= engine < len(self.engines) for engine in engines) or engines[0] == engines[1]:
            raise ValueError(f"step {step.name!r} reorders from engine {engines[0]} to {engines[1]}")
        room = min(
            self._bytes_from(place, e) for place, e in zip((step.source, step.destination), engines, strict=True)
        )
        if step.destination.kind is not PlaceKind.WORK or not 0 <= step.nbytes <= room:
            raise ValueError(f"step {step.name!r}: {step.nbytes} bytes from {step.source} to {step.destination}")

    def _bytes_from(self, place: Place, engine: int) -> int:
        """Return the number of bytes from the beginning of an argument on, negative if it is out of range."""
        if place.value < 0 or place.start < 0:
            return -1
        if place.kind is PlaceKind.WORK:
            room = self.workspaces[engine] - place.value
            return room - place.start if room > 0 else -1
        listed = self._listed(place.kind)
        return listed[place.value].nbytes - place.start if place.value < len(listed) else -1

    def _listed(self, kind: PlaceKind) -> Sequence[PlanConstant | Port]:
        if kind is PlaceKind.CONSTANT:
            return self.constants
        return self.inputs if kind is PlaceKind.INPUT else self.outputs
