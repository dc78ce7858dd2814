"""The value of the primitive cache: a whole primitive as checked data, the same for every engine of its target."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import dataclass

from .derivation import SharedKernel
from .entry import Entry


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, repr=False)
class CachedPrimitive:
    """An entry with its nested primitives, under its identity: the canonical bytes of the key. Immutable.

    Its entry has ``nbytes`` bytes, and took ``creation_s`` seconds to create, on this host or another, or to derive; nested
    primitives have entries of their own.
    """

    identity: bytes
    entry: Entry
    nested: tuple[CachedPrimitive, ...] = ()
    creation_s: float = 0.0
    nbytes: int = 0
    #: Keeps them in the table of the process, where others are derived from them.
    kernels: tuple[SharedKernel, ...] = ()

    def __repr__(self) -> str:
        return f"<cached primitive {self.entry.implementation}>"
