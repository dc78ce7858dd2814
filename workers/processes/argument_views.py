"""The buffers of a call's arguments in a worker: private views of the arena, which the client may use again after the call.

A function may write to its arguments: a page is copied when it is first written to, and nobody else sees it. It may keep an array
longer than its call, in a global, a cache, a thread. Such an array keeps its bytes: its pages are copied after the call, at the
addresses that it has, and later calls get another mapping of the arena. Buffers below `_VIEWED` bytes are copied at once.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from functools import lru_cache, partial
from sys import getrefcount
from typing import Any, Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..ipc.outlined_payload import IN_PLACE, Outlined, Place
from ..memory.arena_view import ArenaView
from .page_faults import count_faults

#: Buffers from this size on, in bytes, are viewed: copying fewer bytes takes some microseconds.
_VIEWED: Final = 64 * 1024
#: Calls whose buffers are kept to be viewed again, and calls after a look at pages in vain that count faults before them.
_KEPT: Final = 64
_CAREFUL: Final = 64


class _View(NamedTuple):
    """A piece of the arena that a function may read and write. All that is made of it refers to ``buffer``."""

    buffer: Any
    offset: int
    nbytes: int


class ArgumentViews:
    """The buffers of one call at a time. `open` and `close` are called around it. ``fd`` is the memory of the arena."""

    def __init__(self, arena: ArenaView, fd: int) -> None:
        self._arena = arena
        self._fd = fd
        self._mapping: ArenaView | None = None
        self._watches = False
        #: The views of the present call.
        self._open: Sequence[_View] = ()
        #: The views of earlier calls in the present mapping, by the places that were opened.
        self._kept: dict[tuple[Place, ...], tuple[Sequence[_View], Sequence[tuple[int, int]]]] = {}
        #: The faults of this process after the last call, or before the present one; -1 if they are not counted.
        self._faults = -1
        #: Calls that faults are counted before.
        self._careful = 1
        #: Address and bytes of each buffer of the present call; 0 for one that is copied.
        self.ranges: Sequence[tuple[int, int]] = ()

    def open(self, parsed: Outlined) -> list[Any]:
        """Return the buffers of arguments, which the function may write to."""
        if self._open:
            self.close()  # those of an initializer
        found: list[Any] = []
        views: list[_View] = []
        ranges: list[tuple[int, int]] = []
        self._count()
        for source, start, nbytes in parsed.places:
            offset = start if source == IN_PLACE else parsed.slots[source].offset + start
            mapping = self._mapping_for(nbytes)
            if mapping is None:
                found.append(bytearray(memoryview(self._arena.buffer(offset, nbytes)).cast("B")))
                ranges.append((0, nbytes))
                continue
            buffer = mapping.buffer(offset, nbytes)
            views.append(_View(buffer, offset, nbytes))
            ranges.append((mapping.address + offset, nbytes))
            found.append(memoryview(buffer).cast("B"))
        self._open, self.ranges = views, ranges
        return found

    def open_places(self, places: tuple[Place, ...]) -> Sequence[Any]:
        """Return the memory of places in the arena, as `open`; the second time it is made already if all of it is viewed."""
        if self._open:
            self.close()  # as in `open`
        kept = self._kept.get(places)
        if kept is None:
            found = self.open(Outlined([], [*places], None))
            if self._open and len(self._open) == len(found):
                if len(self._kept) >= _KEPT:
                    self._kept.clear()
                self._kept[places] = self._open, self.ranges
            return found
        self._count()
        self._open, self.ranges = kept
        return [view[0] for view in self._open]

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
        self.ranges = ()
        opened, self._open = self._open, ()
        mapping = self._mapping
        if mapping is None or not opened:
            return
        if _holders(opened) != _no_holders(len(opened)):
            self._detach(mapping, opened)
            return
        faults = self._faults
        if faults >= 0 and count_faults() == faults:
            return
        written = False
        for _, offset, nbytes in opened:
            if mapping.has_written(offset, nbytes):
                written = True
                mapping.forget_written(offset, nbytes)
        if faults >= 0:
            # What faults between calls of this kind must not cost a look at each: then they are counted before it, too.
            self._careful = self._careful if written else _CAREFUL
            self._faults = count_faults()

    def _detach(self, mapping: ArenaView, opened: Sequence[_View]) -> None:
        """Make copies of what is kept, and view the arena elsewhere from now on."""
        self._mapping = None
        self._kept.clear()
        self._careful = max(self._careful, 1)
        for view, holders, none in zip(opened, _holders(opened), _no_holders(len(opened)), strict=True):
            if holders != none:
                mapping.detach(view.offset, view.nbytes)

    def _count(self) -> None:
        """Note the faults before a call."""
        if self._careful or self._faults < 0:
            self._careful = max(0, self._careful - 1)
            self._faults = count_faults()

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


def _holders(views: Sequence[_View]) -> list[int]:
    """Return how many references there are to the buffer of each view."""
    return [getrefcount(view[0]) for view in views]


@lru_cache(64)
def _no_holders(count: int) -> list[int]:
    """Return what `_holders` returns for so many views that nothing else refers to the buffers of."""
    return _holders([_View(bytearray(1), 0, 1) for _ in range(count)])
