"""The value of the primitive cache: a whole primitive as checked data, the same for every engine of its target."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakValueDictionary

from .entry import Entry


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, repr=False)
class CachedPrimitive:
    """An entry with its nested primitives, under its identity: the canonical bytes of the key. Immutable.

    Its entry has ``nbytes`` bytes, and took ``creation_s`` seconds to create, on this host or another; nested primitives
    have entries of their own.
    """

    identity: bytes
    entry: Entry
    nested: tuple[CachedPrimitive, ...] = ()
    creation_s: float = 0.0
    nbytes: int = 0

    def __repr__(self) -> str:
        return f"<cached primitive {self.entry.implementation}>"


class BinaryTable:
    """Finds the binaries that living cached primitives have, so that equal ones are in memory once.

    Primitives of many shapes often have the same kernels. Safe from many threads.
    """

    def __init__(self) -> None:
        #: Binary -> one of the primitives that have it. With that one goes the record, and at worst a copy is made.
        self._owners: WeakValueDictionary[bytes, CachedPrimitive] = WeakValueDictionary()

    def share(self, entry: Entry) -> Entry:
        """Return an entry with the binaries of living primitives in the place of equal ones."""
        return entry._replace(binaries=tuple(map(self._find, entry.binaries)))

    def add(self, primitive: CachedPrimitive) -> None:
        """Have the binaries of a primitive found as long as it lives."""
        for binary in primitive.entry.binaries:
            self._owners.setdefault(binary, primitive)

    def _find(self, binary: bytes) -> bytes:
        owner = self._owners.get(binary)
        return binary if owner is None else next(b for b in owner.entry.binaries if b == binary)
