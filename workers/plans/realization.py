"""The primitives of a plan on one engine, realized in the plan's order: what is nested in another comes before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ..primitives.entry import Entry, MalformedEntry, parse_entry
from .execution_plan import ExecutionPlan

Realized = TypeVar("Realized")


def realize_all(
    plan: ExecutionPlan, entries: Mapping[int, bytes], realize: Callable[[Entry, Sequence[Realized]], Realized]
) -> dict[int, Realized]:
    """Return the realized form of each entry by its number; ``realize`` is given those of its nested primitives.

    Raises KeyError where a nested primitive is not among the entries, and MalformedEntry.
    """
    found: dict[int, Realized] = {}
    for number in sorted(entries):
        entry = parse_entry(entries[number])
        if entry.copies_in or entry.copies_out:
            raise MalformedEntry(f"{entry.implementation} transfers between engines, as in a plan only crossings do")
        found[number] = realize(entry, [found[inner] for inner in plan.nested_in(number)])
    return found
