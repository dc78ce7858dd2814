"""The buffers of a call's arguments in a worker: private views of the arena, which the client may use again after the call.

A function may write to its arguments: a page is copied when it is first written to, and nobody else sees it. It may keep an array
longer than its call, in a global, a cache, a thread. Such an array keeps its bytes: its pages are copied after the call, at the
addresses that it has, and later calls get another mapping of the arena. Buffers below `_VIEWED` bytes are copied at once.
"""

from __future__ import annotations

import os
import weakref
from functools import partial
from typing import Any, Final

from ..ipc.outlined_payload import IN_PLACE, Outlined
from ..memory.arena_view import ArenaView
from .page_faults import count_faults

#: Buffers from this size on, in bytes, are viewed: copying fewer bytes takes some microseconds.
_VIEWED: Final = 64 * 1024


class ArgumentViews:
    """The buffers of one call at a time. `open` and `close` are called around it. ``fd`` is the memory of the arena."""

    def __init__(self, arena: ArenaView, fd: int) -> None:
        self._arena = arena
        self._fd = fd
        self._mapping: ArenaView | None = None
        self._watches = False
        #: The buffers of the present call that are viewed: the object that each view refers to, its offset and bytes.
        self._open: list[tuple[weakref.ref[Any], int, int]] = []
        #: The faults of this process before the present call, -1 if they are not counted.
        self._faults = -1
        #: Address and bytes of each buffer of the present call; 0 for one that is copied.
        self.ranges: list[tuple[int, int]] = []

    def open(self, parsed: Outlined) -> list[Any]:
        """Return the buffers of arguments, which the function may write to."""
        found: list[Any] = []
        self._faults = count_faults()
        for source, start, nbytes in parsed.places:
            offset = start if source == IN_PLACE else parsed.slots[source].offset + start
            mapping = self._mapping_for(nbytes)
            if mapping is None:
                found.append(bytearray(memoryview(self._arena.buffer(offset, nbytes)).cast("B")))
                self.ranges.append((0, nbytes))
                continue
            buffer = mapping.buffer(offset, nbytes)
            self._open.append((weakref.ref(buffer), offset, nbytes))
            self.ranges.append((mapping.address + offset, nbytes))
            found.append(memoryview(buffer).cast("B"))
        return found

    def find(self, address: int, nbytes: int) -> tuple[int, int] | None:
        """Return the number of the viewed buffer that has some memory, and where in it; None if none has, or it was written."""
        for number, (begin, size) in enumerate(self.ranges):
            if begin and begin <= address and address + nbytes <= begin + size:
                mapping = self._mapping
                written = mapping is None or self._has_written(mapping, address - mapping.address, nbytes)
                return None if written else (number, address - begin)
        return None

    def close(self) -> None:
        """End the views of a call, once nothing here refers to them. Those that the function has kept become copies."""
        if not (self.ranges or self._open):
            return
        self.ranges.clear()
        opened, self._open = self._open, []
        mapping = self._mapping
        if mapping is None or not opened:
            return
        kept = [(offset, nbytes) for buffer, offset, nbytes in opened if buffer() is not None]
        if not kept:
            for _, offset, nbytes in opened:
                if self._has_written(mapping, offset, nbytes):
                    mapping.forget_written(offset, nbytes)
            return
        self._mapping = None
        for offset, nbytes in kept:
            mapping.detach(offset, nbytes)

    def _has_written(self, mapping: ArenaView, offset: int, nbytes: int) -> bool:
        """Return whether pages of some bytes may have been written in the present call.

        None was before it: `close` has dropped those. So each that was has had a fault, which is looked at first.
        """
        faults = self._faults
        return (faults < 0 or count_faults() != faults) and mapping.has_written(offset, nbytes)

    def share(self) -> None:
        """Let a process that the function is about to fork have the arguments, which it may read."""
        if self._mapping is not None:
            for _, offset, nbytes in self._open:
                self._mapping.share_with_forks(offset, nbytes)

    def keep(self) -> None:
        """Let no process that is forked later have the arguments."""
        if self._mapping is not None and self._open:
            self._mapping.keep_from_forks()

    def _mapping_for(self, nbytes: int) -> ArenaView | None:
        """Return the mapping for a buffer that is viewed, None for one that is copied."""
        if nbytes < _VIEWED:
            return None
        if self._mapping is None:
            try:
                mapping = ArenaView(self._fd, private=True)
                mapping.keep_from_forks()
            except OSError:
                return None  # the function has kept so much that address space is short
            if not self._watches:
                self._watches = True
                # Not around each call: most functions fork no process.
                this = weakref.ref(self)
                os.register_at_fork(before=partial(_share, this), after_in_parent=partial(_keep, this))
            self._mapping = mapping
        return self._mapping


def _share(this: weakref.ref[ArgumentViews]) -> None:
    if (views := this()) is not None:
        views.share()


def _keep(this: weakref.ref[ArgumentViews]) -> None:
    if (views := this()) is not None:
        views.keep()
