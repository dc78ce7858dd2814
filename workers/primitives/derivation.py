"""Derive primitives: describe a program and take its kernels from primitives of this process, or from the node's files.

A derived entry is byte for byte the one that a creator would make, but nothing is compiled, and no other process waits for
it: any process with the same kernels derives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from weakref import WeakValueDictionary

from poolrt.cachestore import CacheStore
from poolrt.cachestore.lru import Lru

from ..implementations.cost_model import nanoseconds
from ..implementations.primitive_desc import PrimitiveDesc
from ..implementations.program import Program
from .entry import Entry, MalformedEntry, pack_entry, parse_entry
from .kernel_identity import kernel_identity
from .key import primitive_key

#: Entries of the node that are read, those used last, when a kernel is missing, each once. Reading 1,024 of 3 KB takes 50 ms,
#: measured; compiling a kernel takes 0.1 to 1.5 s.
_MOST_READ: Final = 1024
#: Bytes of kernels that are kept without a primitive: a BERT has 60 kernels of 10 KB for all sizes, measured.
_MOST_BYTES: Final = 16 << 20


class SharedKernel:
    """A binary that primitives of a process have in common; the last of them releases it."""

    __slots__ = ("__weakref__", "binary")

    def __init__(self, binary: bytes) -> None:
        self.binary = binary

    def nbytes(self) -> int:
        """Return the size of the binary."""
        return len(self.binary)


class KernelTable:
    """The kernels of the living primitives of a process, each in memory once, and the last used others. Safe from many threads.

    Some sizes are rare: their kernels outlive their primitives, at most ``capacity`` of them and `_MOST_BYTES`.
    """

    def __init__(self, capacity: int) -> None:
        #: By identity; by the binary itself if an entry names none.
        self._kernels: WeakValueDictionary[bytes, SharedKernel] = WeakValueDictionary()
        self._latest: Lru[bytes, SharedKernel] = Lru(capacity, _MOST_BYTES, weigh=SharedKernel.nbytes)
        #: Digests of the node's entries that were read.
        self._read: frozenset[str] = frozenset()

    def set_capacity(self, capacity: int) -> None:
        """Keep at most ``capacity`` kernels that no primitive has, from now on."""
        self._latest.set_capacity(capacity)

    def share(self, entry: Entry) -> tuple[Entry, tuple[SharedKernel, ...]]:
        """Return an entry with the table's binaries in the place of equal ones, and the kernels for its primitive to hold."""
        names = entry.kernels or entry.binaries
        held = tuple(
            self._kernels.setdefault(name, SharedKernel(binary))
            for name, binary in zip(names, entry.binaries, strict=True)
        )
        for identity, kernel in zip(entry.kernels, held, strict=False):
            self._latest.put(identity, kernel)
        return entry._replace(binaries=tuple(kernel.binary for kernel in held)), held

    def derive(self, pd: PrimitiveDesc, store: CacheStore) -> bytes | None:
        """Return the entry of a primitive whose kernels are all here or in the files of ``store``'s node, else None.

        Raises what describing it raises.
        """
        read = self._read_node(store) if not self._kernels else False
        if not self._kernels:
            return None
        program = pd.program()
        identities = identities_of(pd, program)
        binaries = self._find(identities)
        if binaries is None and not read and self._read_node(store):
            binaries = self._find(identities)
        return None if binaries is None else pack_program(pd, program, identities, binaries)

    def _find(self, identities: Sequence[bytes]) -> list[bytes] | None:
        """Return the binaries of kernels; None if one is missing."""
        found = [self._kernels.get(identity) for identity in identities]
        binaries = []
        for identity, kernel in zip(identities, found, strict=True):
            if kernel is None:
                return None
            self._latest.put(identity, kernel)
            binaries.append(kernel.binary)
        return binaries

    def _read_node(self, store: CacheStore) -> bool:
        """Read the kernels of entries that other processes have created on this node; return whether there were new entries."""
        payloads = store.payloads_here(self._read, _MOST_READ)
        self._read |= payloads.keys()
        for payload in payloads.values():
            try:
                self.share(parse_entry(payload))
            except MalformedEntry:
                continue  # not a primitive, or one of another version
        return bool(payloads)


def identities_of(pd: PrimitiveDesc, program: Program) -> list[bytes]:
    """Return the identities of the kernels of a primitive's program."""
    return [kernel_identity(spec, pd.target) for spec in program.kernels]


def pack_program(pd: PrimitiveDesc, program: Program, identities: Sequence[bytes], binaries: list[bytes]) -> bytes:
    """Return the entry of a primitive with its program and kernels. Raises OverflowError for integers beyond 64 bits."""
    kind = pd.target.engine_kind
    names = [spec.name for spec in program.kernels] if kind == "opencl" else []
    nested = [primitive_key(inner).canonical for inner in program.nested]
    return pack_entry(pd.impl_name(), kind, program, binaries, names, nested, nanoseconds(pd), identities)
