"""The entries of a primitive and of all that is nested in it, as the runners of tests hand them on."""

from __future__ import annotations

from collections.abc import Callable

from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.primitives.key import primitive_key


def entries_of(pd: PrimitiveDesc, create: Callable[[PrimitiveDesc], str]) -> list[tuple[str, list[int]]]:
    """Return what ``create`` answers for each distinct primitive, nested ones first, with the numbers of its own."""
    numbers: dict[str, int] = {}
    found: list[tuple[str, list[int]]] = []

    def number(one: PrimitiveDesc) -> int:
        digest = primitive_key(one).digest
        if digest not in numbers:
            nested = [number(inner) for inner in one.nested()]
            numbers[digest] = len(found)
            found.append((create(one), nested))
        return numbers[digest]

    number(pd)
    return found
