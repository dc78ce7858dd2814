"""The end of lowering: merges equal primitives, assigns places in memory, and returns the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from poolrt.cachestore import Key
from poolrt.cachestore.deferred_dataclass import dataclass, field, replace
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

from .errors import LoweringError
from .ir import MAX_TENSOR
from .lifetime import Lifetime, place
from .plan_builder import PlanBuilder, Version


@dataclass(frozen=True, slots=True)
class LoweredPlan:
    """A plan with the distinct primitives it executes and their keys, in the plan's numbering."""

    plan: ExecutionPlan
    primitives: tuple[PrimitiveDesc, ...]
    keys: tuple[Key, ...]


def finish_plan(
    builder: PlanBuilder, engine: str, inputs: Sequence[Port], outputs: Sequence[Port], loop: int | None = None
) -> LoweredPlan:
    """Return the plan of a builder whose graph is for ``engine``; ``loop`` is the builder's number of the region loop.

    Raises LoweringError if the plan needs too much memory.
    """
    distinct = _merge(builder.primitives)
    homes = [storage.engine for storage in builder.storages if storage.engine]
    engines = tuple(dict.fromkeys((*distinct.engines, *homes))) or (engine,)
    used, constants = _used_constants(builder)
    ends = _last_readers(builder)
    workspaces = tuple(_assign_offsets(builder, each, ends) for each in engines)

    def place_of(version: Version) -> Place:
        storage = builder.storage_of(version)
        number = used[storage.number] if storage.kind is PlaceKind.CONSTANT else storage.number
        return Place(storage.kind, number, builder.locate(version).start)

    steps: list[Step | CrossEngineReorder] = []
    for step in builder.steps:
        if step.primitive is not None:
            args = tuple((int(arg), place_of(version)) for arg, version in step.args.items())
            steps.append(Step(distinct.numbers[step.primitive], args, step.name))
        else:
            src, dst = step.args[Arg.SRC], step.args[Arg.DST]
            source, destination = ((place_of(v), engines.index(builder.engine_of(v))) for v in (src, dst))
            steps.append(CrossEngineReorder(*source, *destination, src.desc.nbytes, ends[dst.storage], step.name))
    constants = tuple(c if c.reorder is None else replace(c, reorder=distinct.numbers[c.reorder]) for c in constants)
    numbers = tuple(engines.index(each) for each in distinct.engines)
    nested = tuple(distinct.nested) if any(distinct.nested) else ()
    ports = tuple(inputs), tuple(outputs)
    loop = None if loop is None else distinct.numbers[loop]
    plan = ExecutionPlan(engines, tuple(steps), constants, *ports, workspaces, numbers, nested, loop)
    return LoweredPlan(plan, tuple(distinct.primitives), tuple(distinct.keys))


def _assign_offsets(builder: PlanBuilder, engine: str, ends: Sequence[int]) -> int:
    """Give each result on an engine its offset in the workspace; return the size of the workspace in bytes."""
    results = [
        (storage, Lifetime(storage.nbytes, storage.first, end))
        for storage, end in zip(builder.storages, ends, strict=True)
        if storage.kind is PlaceKind.WORK and storage.engine == engine and storage.whole < 0
    ]
    offsets, workspace = place([lifetime for _, lifetime in results])
    if workspace > MAX_TENSOR:
        raise LoweringError(f"its steps need {workspace} bytes of memory at once, more than {MAX_TENSOR}")
    for (storage, _), offset in zip(results, offsets, strict=True):
        storage.number = offset
    return workspace


def _last_readers(builder: PlanBuilder) -> list[int]:
    """Return the last step that needs each storage.

    The result of a reorder between engines may be an alias of its source, which is therefore needed as long.
    """
    ends = [storage.last for storage in builder.storages]
    for step in reversed(builder.steps):
        if step.primitive is None:
            source, destination = (builder.locate(step.args[arg]).storage for arg in (Arg.SRC, Arg.DST))
            ends[source] = max(ends[source], ends[destination])
    return ends


def _used_constants(builder: PlanBuilder) -> tuple[dict[int, int], tuple[PlanConstant, ...]]:
    """Return the new number of each constant that a step reads, and these constants; the others are left out.

    No step reads the row-major form of a constant that was reordered.
    """
    versions = (version for step in builder.steps for version in step.args.values() if builder.is_constant(version))
    order = sorted({builder.storage_of(version).number for version in versions})
    return {old: new for new, old in enumerate(order)}, tuple(builder.constants[i] for i in order)


@dataclass(slots=True)
class _Distinct:
    """Primitives distinct by key and engine; nested ones come before those they are nested in.

    ``numbers`` has the number here of each primitive of the builder.
    """

    primitives: list[PrimitiveDesc] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    engines: list[str] = field(default_factory=list)
    nested: list[tuple[int, ...]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)


def _merge(primitives: Iterable[tuple[PrimitiveDesc, str]]) -> _Distinct:
    """Return the distinct ones of primitives and of those nested in them."""
    known: dict[tuple[Key, str], int] = {}
    found = _Distinct()

    def number_of(pd: PrimitiveDesc, engine: str) -> int:
        key = primitive_key(pd)
        if (key, engine) not in known:
            inner = tuple(number_of(one, engine) for one in pd.nested())
            known[key, engine] = len(found.primitives)
            found.primitives.append(pd)
            found.keys.append(key)
            found.engines.append(engine)
            found.nested.append(inner)
        return known[key, engine]

    found.numbers = [number_of(pd, engine) for pd, engine in primitives]
    return found
