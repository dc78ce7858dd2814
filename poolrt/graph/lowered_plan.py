"""The end of lowering: equal primitives are merged, memory is placed, and what is left is a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from poolrt.cachestore import Key
from poolrt.workers.desc import Arg
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.plans.execution_plan import (
    CrossEngineReorder,
    ExecutionPlan,
    Place,
    PlaceKind,
    PlanConstant,
    Port,
    Step,
)
from poolrt.workers.primitives.key import primitive_key

from .lifetime import Lifetime, place
from .plan_builder import PlanBuilder, Storage, Version

#: Largest tensor, in bytes: a process can address no larger one.
MAX_TENSOR: Final = 1 << 47


class LoweringError(ValueError):
    """A graph cannot be made ready for its engines. Raised by `lower`; names the node and the reason."""


@dataclass(frozen=True, slots=True)
class LoweredPlan:
    """A plan with the distinct primitives it executes and their keys, in the plan's numbering."""

    plan: ExecutionPlan
    primitives: tuple[PrimitiveDesc, ...]
    keys: tuple[Key, ...]


def finished(
    draft: PlanBuilder, engine: str, inputs: Sequence[Port], outputs: Sequence[Port], loop: int | None = None
) -> LoweredPlan:
    """Return the plan of a draft whose graph is for ``engine``; ``loop`` is the draft's number of the region loop.

    Raises LoweringError where it needs too much memory.
    """
    distinct = _merged(draft.primitives)
    where = distinct.engines
    homes = [storage.engine for storage in draft.storages if storage.engine]
    engines = tuple(dict.fromkeys((*where, *homes))) or (engine,)
    used, constants = _used_constants(draft)
    reads = _ends(draft)
    workspaces = tuple(_placed(draft, each, reads) for each in engines)

    def located(version: Version) -> Place:
        storage = draft.storages[version.storage]
        number = used[storage.number] if storage.kind is PlaceKind.CONSTANT else storage.number
        return Place(storage.kind, number, version.start)

    steps: list[Step | CrossEngineReorder] = []
    for step in draft.steps:
        if step.primitive is not None:
            args = tuple((int(arg), located(version)) for arg, version in step.args.items())
            steps.append(Step(distinct.numbers[step.primitive], args, step.name))
        else:
            src, dst = step.args[Arg.SRC], step.args[Arg.DST]
            ends = [(located(v), engines.index(draft.home(v))) for v in (src, dst)]
            until = reads[id(_storage(draft, dst))]
            steps.append(CrossEngineReorder(*ends[0], *ends[1], src.desc.nbytes, until, step.name))
    constants = tuple(c if c.reorder is None else replace(c, reorder=distinct.numbers[c.reorder]) for c in constants)
    numbers = tuple(engines.index(each) for each in where)
    nested = tuple(distinct.nested) if any(distinct.nested) else ()
    ports = tuple(inputs), tuple(outputs)
    loop = None if loop is None else distinct.numbers[loop]
    plan = ExecutionPlan(engines, tuple(steps), constants, *ports, workspaces, numbers, nested, loop)
    return LoweredPlan(plan, tuple(distinct.primitives), tuple(distinct.keys))


def _placed(draft: PlanBuilder, engine: str, ends: Mapping[int, int]) -> int:
    """Give each result on an engine its offset in the workspace; return the bytes of that."""
    kept = [s for s in draft.storages if s.kind is PlaceKind.WORK and s.engine == engine]
    offsets, workspace = place([Lifetime(s.nbytes, s.first, ends[id(s)]) for s in kept])
    if workspace > MAX_TENSOR:
        raise LoweringError(f"its steps need {workspace} bytes of memory at once, more than {MAX_TENSOR}")
    for storage, offset in zip(kept, offsets, strict=True):
        storage.number = offset
    return workspace


def _ends(draft: PlanBuilder) -> dict[int, int]:
    """Return the last step that needs each storage: what has crossed may be read where it came from."""
    ends = {id(storage): storage.last for storage in draft.storages}
    for step in reversed(draft.steps):
        if step.primitive is None:
            source, destination = (_storage(draft, step.args[arg]) for arg in (Arg.SRC, Arg.DST))
            ends[id(source)] = max(ends[id(source)], ends[id(destination)])
    return ends


def _storage(draft: PlanBuilder, version: Version) -> Storage:
    return draft.storages[version.storage]


def _used_constants(draft: PlanBuilder) -> tuple[dict[int, int], tuple[PlanConstant, ...]]:
    """Return the constants that steps read, renumbered: the row-major form of one that was reordered is left out."""
    read = {
        draft.storages[version.storage].number
        for step in draft.steps
        for version in step.args.values()
        if draft.is_constant(version)
    }
    order = sorted(read)
    return {old: new for new, old in enumerate(order)}, tuple(draft.constants[i] for i in order)


@dataclass(slots=True)
class _Distinct:
    """Primitives distinct by key and engine, those that are nested in another before it.

    ``numbers`` has for each primitive of the draft its number here.
    """

    primitives: list[PrimitiveDesc] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    engines: list[str] = field(default_factory=list)
    nested: list[tuple[int, ...]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)


def _merged(primitives: Iterable[tuple[PrimitiveDesc, str]]) -> _Distinct:
    """Return the distinct primitives of a draft and of what is nested in them."""
    known: dict[tuple[Key, str], int] = {}
    found = _Distinct()

    def number(pd: PrimitiveDesc, engine: str) -> int:
        key = primitive_key(pd)
        if (key, engine) not in known:
            inner = tuple(number(one, engine) for one in pd.nested())
            known[key, engine] = len(found.primitives)
            found.primitives.append(pd)
            found.keys.append(key)
            found.engines.append(engine)
            found.nested.append(inner)
        return known[key, engine]

    found.numbers = [number(pd, engine) for pd, engine in primitives]
    return found
