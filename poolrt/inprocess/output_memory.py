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

from poolrt.cachestore.forked_locks import freed_in_children
from poolrt.workers.memory.array_room import ArrayRoom

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: References to a room's bytes if no output uses them: the room's own, its array's, and the argument of `sys.getrefcount`.
_UNUSED: Final = 3
#: Rooms of one size that are kept: the caller's variable may hold the last output while the next is computed.
_MOST_OF_A_SIZE: Final = 4


class _OutputRoom(ArrayRoom):
    """A room with the array that outputs in it are views of: a view takes a tenth of the time of a new array."""

    __slots__ = ("array", "dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> None:
        super().__init__(nbytes)
        self.form(shape, dtype)

    def form(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Have an array of this shape and data type, whose base is the room's bytes."""
        self.shape = shape
        self.dtype = dtype
        self.array: NDArray[Any] = np.ndarray(shape, dtype, self.bytes, self.start)


class OutputMemory:
    """Keeps up to ``capacity_bytes`` of memory for outputs. Safe from many threads."""

    def __init__(self, capacity_bytes: int) -> None:
        self._lock = freed_in_children(threading.Lock())
        #: By size, the least recently used size first.
        self._rooms: OrderedDict[int, list[_OutputRoom]] = OrderedDict()
        self._capacity = capacity_bytes
        self._bytes = 0

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
        with self._lock:
            rooms = self._rooms.get(nbytes)
            # In one piece: for a small graph, calls of functions take as long as what they do here.
            for room in rooms or ():
                if getrefcount(room.bytes) == _UNUSED:
                    if len(self._rooms) > 1:
                        self._rooms.move_to_end(nbytes)
                    if room.shape != shape or room.dtype is not dtype:
                        room.form(shape, dtype)
                    break
            else:
                room = self._add(rooms, shape, dtype, nbytes)
            return room.array.view(), room.address

    def _add(
        self, rooms: list[_OutputRoom] | None, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int
    ) -> _OutputRoom:
        room = _OutputRoom(shape, dtype, nbytes)
        if 2 * room.nbytes <= self._capacity and (rooms is None or len(rooms) < _MOST_OF_A_SIZE):
            self._rooms.setdefault(nbytes, []).append(room)
            self._rooms.move_to_end(nbytes)
            self._bytes += room.nbytes
            self._evict()
        return room

    def _evict(self) -> None:
        while self._bytes > self._capacity:
            _, dropped = self._rooms.popitem(last=False)
            self._bytes -= sum(room.nbytes for room in dropped)
