"""Leases on slots of the arena: reference counts for each holder, so that ending a holder releases all its slots."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from poolrt.memory.arena import Allocator


class NotHeld(LookupError):
    """A holder names a slot that it has no lease on. Raised by `Leases`; such a client violates the protocol."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset

    def __str__(self) -> str:
        return f"no lease on a slot at offset {self.offset}"


class Leases:
    """Slots and their holders: a client, a run under way, a model. A slot is free again when its last lease ends."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        #: Slots freed so far.
        self.freed = 0
        self._references: dict[int, int] = {}
        self._held: dict[Hashable, dict[int, int]] = {}

    def take(self, sizes: Sequence[int], holder: Hashable) -> list[int]:
        """Return the offsets of new slots for tensors of ``sizes`` bytes. Takes all or none; raises ArenaExhausted."""
        taken: list[int] = []
        try:
            for size in sizes:
                taken.append(self.allocator.take(size))
        except MemoryError:
            for offset in taken:
                self.allocator.free(offset)
            raise
        held = self._held.setdefault(holder, {})
        for offset in taken:
            self._references[offset] = 1
            held[offset] = 1
        return taken

    def holds(self, holder: Hashable, offset: int, nbytes: int) -> bool:
        """Return whether a holder has a lease on a slot that is large enough for ``nbytes``."""
        return offset in self._held.get(holder, ()) and self.allocator.size(offset) >= nbytes

    def count(self, holder: Hashable) -> int:
        """Return the number of slots that a holder has leases on."""
        return len(self._held.get(holder, ()))

    def share(self, offset: int, holder: Hashable) -> None:
        """Add a lease on a slot. Raises NotHeld if no holder has one."""
        if offset not in self._references:
            raise NotHeld(offset)
        held = self._held.setdefault(holder, {})
        held[offset] = held.get(offset, 0) + 1
        self._references[offset] += 1

    def release(self, offset: int, holder: Hashable) -> None:
        """End one lease. Raises NotHeld."""
        held = self._held.get(holder)
        count = held.get(offset, 0) if held else 0
        if held is None or not count:
            raise NotHeld(offset)
        if count > 1:
            held[offset] = count - 1
        else:
            del held[offset]
            if not held:
                del self._held[holder]
        self._drop(offset, 1)

    def transfer(self, offsets: Sequence[int], giver: Hashable, taker: Hashable) -> None:
        """Transfer one lease on each slot to another holder. Raises NotHeld."""
        for offset in offsets:
            self.share(offset, taker)
            self.release(offset, giver)

    def end(self, holder: Hashable) -> None:
        """End all leases of a holder; it need not have any."""
        for offset, count in self._held.pop(holder, {}).items():
            self._drop(offset, count)

    def rename(self, holder: Hashable, name: Hashable) -> None:
        """Give all leases of a holder to another one that has none."""
        held = self._held.pop(holder, None)
        if held is not None:
            self._held[name] = held

    def compact(self) -> None:
        """Return the memory of tables that have been much larger: a table does not shrink by itself."""
        self._references = dict(self._references)
        self._held = dict(self._held)
        self.allocator.compact()

    def holders(self) -> list[Hashable]:
        """Return the holders that have a lease."""
        return list(self._held)

    def _drop(self, offset: int, count: int) -> None:
        left = self._references[offset] - count
        if left:
            self._references[offset] = left
        else:
            del self._references[offset]
            self.allocator.free(offset)
            self.freed += 1
