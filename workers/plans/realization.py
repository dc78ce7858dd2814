"""The primitives of a plan, realized in the plan's order: what is nested in another comes before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engines.engine import Engine
from ..execution.resource import Resource
from ..execution.resource_mapper import realize
from ..primitives.entry import MalformedEntry, parse_entry
from .execution_plan import ExecutionPlan


def realize_all(
    plan: ExecutionPlan, entries: Sequence[bytes], engines: Sequence[Engine]
) -> dict[int, Resource[Any, Any]]:
    """Return the resource of each entry by its number, on the engine that the plan says.

    Raises ValueError where there are not as many entries as primitives, and MalformedEntry.
    """
    if len(entries) != len(plan.primitives):
        raise ValueError(f"expect one entry for each of {len(plan.primitives)} primitives, got {len(entries)}")
    found: dict[int, Resource[Any, Any]] = {}
    for number, (data, engine) in enumerate(zip(entries, plan.primitives, strict=True)):
        entry = parse_entry(data)
        if entry.copies_in or entry.copies_out:
            raise MalformedEntry(f"{entry.implementation} copies between engines; in a plan only its reorders do")
        found[number] = realize(entry, engines[engine], [found[inner] for inner in plan.nested_in(number)])
    return found
