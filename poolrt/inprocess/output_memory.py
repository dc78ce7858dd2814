"""Memory of outputs: the caller's as long as the caller holds any part of it, and then a later output's.

Fresh memory costs about 15 us a megabyte, because the system zeroes each page that is touched for the first time.

Guarantees: memory is given out again only when no array, view or other object refers to it any more. The memory kept for
reuse never exceeds the bound.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from poolrt.cachestore.forked_locks import freed_in_children, held_by_this_thread
from poolrt.workers.memory.array_room import ArrayRoom

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: References to a room's bytes if no output uses them: the room's own, its array's, and the argument of `sys.getrefcount`.
_UNUSED: Final = 3
#: The same with an array that was just made of them.
_TAKEN: Final = _UNUSED + 1
#: Rooms of one size that are kept however large they are: the caller's variable may hold the last output while the next is
#: computed. Runs may have several outputs of one size: up to the second number are kept if half of the capacity holds them.
_LEAST_OF_A_SIZE: Final = 4
_MOST_OF_A_SIZE: Final = 32


class _OutputRoom(ArrayRoom):
    """A room with the array that outputs in it are views of: a view takes a tenth of the time of a new array."""

    __slots__ = ("formed",)

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> None:
        super().__init__(nbytes)
        #: The array with its shape and data type, exchanged at once, because threads read them without a lock.
        self.formed = self.new_array(shape, dtype), shape, dtype

    def new_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array of this shape and data type, whose base is the room's bytes."""
        return np.ndarray(shape, dtype, self.bytes, self.start)


class OutputMemory:
    """Keeps up to ``capacity_bytes`` of memory for outputs. Safe from many threads."""

    def __init__(self, capacity_bytes: int) -> None:
        self._lock = freed_in_children(threading.RLock())
        self._is_held = held_by_this_thread(self._lock)
        #: By size, the least recently used size first.
        self._rooms: OrderedDict[int, list[_OutputRoom]] = OrderedDict()
        self._capacity = capacity_bytes
        self._bytes = 0
        #: The size that was used last, 0 if none is kept.
        self._newest = 0

    @property
    def nbytes(self) -> int:
        """The bytes that are kept, those that callers hold among them."""
        return self._bytes

    def set_capacity(self, capacity_bytes: int) -> None:
        """Keep at most so many bytes from now on."""
        with self._lock:
            self._capacity = capacity_bytes
            self._evict()

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> tuple[NDArray[Any], int]:
        """Return an array of ``nbytes`` that nothing else refers to, and its address, which begins a cache line.

        Kernels may read `SLACK` bytes behind it.
        """
        # Without the lock, which takes half of the time. Of threads that make arrays of one room at once, none counts only its
        # own, so none takes it.
        for room in self._rooms.get(nbytes, ()):
            if getrefcount(room.bytes) != _UNUSED:
                continue
            whole, known, kind = room.formed
            if kind is dtype and known == shape:
                array = whole.view()
                if getrefcount(room.bytes) == _TAKEN and (nbytes == self._newest or self._use(nbytes)):
                    return array, room.address
        if self._is_held():
            # A finalizer or a signal's handler in the middle of what follows: the memory is not kept.
            room = _OutputRoom(shape, dtype, nbytes)
            return room.formed[0].view(), room.address
        with self._lock:
            rooms = self._rooms.get(nbytes)
            for room in rooms or ():
                if getrefcount(room.bytes) != _UNUSED:
                    continue
                array = room.new_array(shape, dtype)
                if getrefcount(room.bytes) == _TAKEN:
                    self._rooms.move_to_end(nbytes)
                    self._newest = nbytes
                    if room.formed[1:] != (shape, dtype):
                        room.formed = room.new_array(shape, dtype), shape, dtype
                    return array, room.address
            room = _OutputRoom(shape, dtype, nbytes)
            # Before others see the room: they take it without the lock.
            array = room.formed[0].view()
            self._keep(room, rooms, nbytes)
            return array, room.address

    def _use(self, nbytes: int) -> bool:
        """Note the use of a size without the lock; return whether rooms of it are still kept."""
        try:
            self._rooms.move_to_end(nbytes)
        except KeyError:
            return False
        self._newest = nbytes
        return True

    def _keep(self, room: _OutputRoom, rooms: list[_OutputRoom] | None, nbytes: int) -> None:
        kept = len(rooms) if rooms else 0
        # The first of a size may take all, since the system takes longer to clear the pages of a large one than kernels to fill
        # them; others leave a half of the capacity.
        parts = 2 * (1 if kept < _LEAST_OF_A_SIZE else kept + 1) if kept else 1
        if kept < _MOST_OF_A_SIZE and parts * room.nbytes <= self._capacity:
            self._rooms.setdefault(nbytes, []).append(room)
            self._rooms.move_to_end(nbytes)
            self._newest = nbytes
            self._bytes += room.nbytes
            self._evict()

    def _evict(self) -> None:
        while self._bytes > self._capacity:
            _, dropped = self._rooms.popitem(last=False)
            self._bytes -= sum(room.nbytes for room in dropped)
