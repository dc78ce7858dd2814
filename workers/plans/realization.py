"""The primitives of a plan, realized in the plan's order: what is nested in another comes before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from poolrt.cachestore.digests import sha256

from ..engines.engine import Engine
from ..execution.resource import Resource
from ..execution.resource_mapper import realize
from ..primitives.entry import Entry, MalformedEntry, parse_entry
from .execution_plan import ExecutionPlan


def realize_all(
    plan: ExecutionPlan, entries: Sequence[bytes], engines: Sequence[Engine], only: Iterable[int] | None = None
) -> dict[int, Resource[Any, Any]]:
    """Return the resource of each entry by its number, on the engine that the plan says; or ``only`` of some, and their nested.

    Raises ValueError where there are not as many entries as primitives, and MalformedEntry.
    """
    if len(entries) != len(plan.primitives):
        raise ValueError(f"expect one entry for each of {len(plan.primitives)} primitives, got {len(entries)}")
    found: dict[int, Resource[Any, Any]] = {}
    wanted = None if only is None else _with_nested(plan, only)
    for number, (data, engine) in enumerate(zip(entries, plan.primitives, strict=True)):
        if wanted is not None and number not in wanted:
            continue
        entry = parse_entry(data)
        if entry.copies_in or entry.copies_out:
            raise MalformedEntry(f"{entry.implementation} copies between engines; in a plan only its reorders do")
        found[number] = _share(data, entry, engines[engine], [found[inner] for inner in plan.nested_in(number)])
    return found


def _with_nested(plan: ExecutionPlan, numbers: Iterable[int]) -> set[int]:
    found, waiting = set[int](), [*numbers]
    while waiting:
        number = waiting.pop()
        found.add(number)
        waiting += plan.nested_in(number)
    return found


def _share(data: bytes, entry: Entry, engine: Engine, nested: list[Resource[Any, Any]]) -> Resource[Any, Any]:
    """Return the resource that plans of this process have for equal entries, realized now if there is none."""
    # A resource keeps its nested ones, so their numbers are nobody else's while it lives.
    key = sha256(data).digest(), *map(id, nested)
    found: Resource[Any, Any] = engine.resources.get(key, lambda: realize(entry, engine, nested))
    return found
