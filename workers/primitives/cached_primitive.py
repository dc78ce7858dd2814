"""The value of the primitive cache: a whole primitive as checked data, the same for every engine of its target."""

from __future__ import annotations

from .entry import Entry


class CachedPrimitive:
    """An entry with its nested primitives, under its identity: the canonical bytes of the key. Immutable."""

    __slots__ = ("entry", "identity", "nested")

    def __init__(self, identity: bytes, entry: Entry, nested: tuple[CachedPrimitive, ...] = ()) -> None:
        self.identity = identity
        self.entry = entry
        self.nested = nested

    def __repr__(self) -> str:
        return f"<cached primitive {self.entry.implementation}>"
