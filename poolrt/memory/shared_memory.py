"""The client's part of the arena: slots that it holds leases on, and NumPy arrays in them.

A slot is released when its array and every view of it are gone. Slots of inputs are kept for the next input of their
size, so that a steady stream of runs sends no requests for memory and writes to warm memory only.
"""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from poolrt.connection.client import Client
from poolrt.connection.dropped_interrupts import resend_dropped_interrupts
from poolrt.errors import ArenaFull
from poolrt.workers.ipc.protocol import NUMBERS_LIMIT, Kind
from poolrt.workers.memory.arena_view import ArenaView
from poolrt.workers.memory.first_writes import FirstWrites

from .kept_slots import KeptSlots

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.runs.prepared_runs import PreparedRuns

#: Most bytes of slots kept for later inputs, and the fraction of the arena that they may be.
_KEPT: Final = 256 * 1024 * 1024
_KEPT_PART: Final = 8
#: Slots of each size that are kept for outputs, and the largest size, in bytes, of which so many are taken at once.
_AHEAD: Final = 8
_AHEAD_BYTES: Final = 64 * 1024
#: Slots of each size up to a page that are kept for outputs: many short runs may be in flight.
_IN_FLIGHT: Final = 128
#: Released slots, or bytes of them, that are sent in a message of their own; fewer wait for the next message.
_BATCH: Final = 16
_BATCH_BYTES: Final = 1024 * 1024
#: Slots whose arrays have ended since slots were last taken: each end looks at all of them.
_RETURNED: Final = 256
#: So many times the length of a collection that found nothing is the time to the next one.
_PAUSES: Final = 10
#: Bytes of an array that counts for how full the arena is.
_LARGE: Final = 64 * 1024


class SharedMemory:
    """Maps the arena of a connection and manages this client's slots. Safe for use by several threads."""

    def __init__(self, client: Client, fd: int) -> None:
        """Map the arena behind ``fd``, which is closed."""
        try:
            self._view = ArenaView(fd)
        finally:
            os.close(fd)
        resend_dropped_interrupts()  # slots are released in finalizers
        self._writes = FirstWrites(self._view)
        self._client = client
        self._lock = threading.Lock()
        limit = min(_KEPT, self._view.nbytes // _KEPT_PART)
        self._kept = KeptSlots(limit)
        #: Slots to keep, with the bytes of their arrays, that finalizers have appended: these take no lock.
        self._returned: list[tuple[int, int, KeptSlots]] = []
        #: For outputs of runs on rings, whose slots this client takes.
        self._kept_outputs = KeptSlots(limit, _AHEAD, _IN_FLIGHT)
        #: Offset -> usable bytes, of slots that hold an array of this client.
        self._in_use: dict[int, int] = {}
        #: Bytes of the large ones among them, and of those that finalizers have ended since.
        self._large_bytes = 0
        self._ended: list[int] = []
        self._released_bytes = 0
        #: When Python's collector may run again, by `time.monotonic`.
        self._next_collection = 0.0
        #: What releases slots that it keeps, if memory is short.
        self.shed: weakref.WeakSet[PreparedRuns] = weakref.WeakSet()

    def take(self, sizes: Sequence[int]) -> list[int]:
        """Return the offsets of slots for tensors of ``sizes`` bytes. Raises ArenaFull."""
        with self._lock:
            self._keep_returned()
            found = [self._kept.take(nbytes) for nbytes in sizes]
        missing = [nbytes for offset, nbytes in zip(found, sizes, strict=True) if offset < 0]
        if missing:
            try:
                offsets = iter(self._allocate(missing))
            except BaseException:
                for offset, nbytes in zip(found, sizes, strict=True):
                    if offset >= 0:
                        self.give(offset, nbytes)
                raise
            found = [offset if offset >= 0 else next(offsets) for offset in found]
        return found

    def give(self, offset: int, nbytes: int) -> None:
        """Keep an unused slot for ``nbytes`` for later, or release it."""
        with self._lock:
            self._keep_returned()
            if self._kept.keep(offset, nbytes):
                return
        self._release(offset, nbytes)

    def take_outputs(self, sizes: Sequence[int], *, ahead: bool = True) -> list[int]:
        """Return the offsets of slots for outputs of ``sizes`` bytes; take some of small sizes ahead. Raises ArenaFull."""
        with self._lock:
            self._keep_returned()
            found = [self._kept_outputs.take(nbytes) for nbytes in sizes]
        missing = [nbytes for offset, nbytes in zip(found, sizes, strict=True) if offset < 0]
        if not missing:
            return found
        try:
            small = [nbytes for nbytes in missing if nbytes <= _AHEAD_BYTES] if ahead else []
            spare = small * (min(_AHEAD, NUMBERS_LIMIT // len(missing)) - 1)
            offsets = self._allocate(missing + spare)
        except BaseException:
            for offset, nbytes in zip(found, sizes, strict=True):
                if offset >= 0:
                    self.give_output(offset, nbytes)
            raise
        for offset, nbytes in zip(offsets[len(missing) :], spare, strict=True):
            self.give_output(offset, nbytes)
        fresh = iter(offsets)
        return [offset if offset >= 0 else next(fresh) for offset in found]

    def give_output(self, offset: int, nbytes: int) -> None:
        """Keep an unused slot of an output of ``nbytes`` for later ones, or release it."""
        with self._lock:
            self._keep_returned()
            if self._kept_outputs.keep(offset, nbytes):
                return
        self._release(offset, nbytes)

    def release_outputs(self) -> None:
        """Release the slots that are kept for outputs."""
        with self._lock:
            self._keep_returned()
            kept = self._kept_outputs.clear()
        for offset in kept:
            self._client.release(offset)

    def output(self, offset: int, shape: Sequence[int], dtype: str, *, keep: bool) -> NDArray[Any]:
        """Return an output of a run: the array in its slot, or a copy if the program has more than half of the arena in arrays.

        So a program that holds all that it computes leaves room for what it computes next. With ``keep``, the slot is kept for
        later outputs of runs on rings.
        """
        found = self.array(offset, shape, dtype, is_output=keep)
        return found.copy() if found.nbytes >= _LARGE and self._is_crowded() else found

    def array(
        self, offset: int, shape: Sequence[int], dtype: str, *, keep: bool = False, is_output: bool = False
    ) -> NDArray[Any]:
        """Return a writable array, row-major, that owns this client's lease on a slot.

        The slot is released when the array and all views of it are gone, or kept for later: with ``keep`` for inputs, with
        ``is_output`` for outputs of runs on rings.
        """
        import numpy

        kind = numpy.dtype(dtype)
        count = 1
        for extent in shape:
            count *= extent
        nbytes = count * kind.itemsize
        if nbytes >= _LARGE:
            with self._lock:
                self._large_bytes += nbytes
        # All views refer to the buffer object, so it ends with the last of them.
        buffer = self._view.buffer(offset, max(nbytes, 1))
        self._in_use[offset] = nbytes
        kept = self._kept if keep else self._kept_outputs if is_output else None
        # Not a bare reference with a callback, though it is made faster: `dropped_interrupts` calls a finalizer again.
        weakref.finalize(buffer, self._on_array_freed, offset, nbytes, kept).atexit = False
        return numpy.frombuffer(buffer, kind, count).reshape(shape)

    def bytes_at(self, offset: int, nbytes: int) -> NDArray[Any]:
        """Return a writable view on a slot that the caller keeps."""
        import numpy

        return numpy.frombuffer(self._view.buffer(offset, max(nbytes, 1)), numpy.uint8, nbytes)

    @property
    def nbytes(self) -> int:
        """The bytes of the arena."""
        return self._view.nbytes

    def room(self, offset: int, nbytes: int) -> memoryview:
        """Return writable bytes of a slot that the caller keeps, and writes to now."""
        self._writes.prepare(offset, nbytes)
        return memoryview(self._view.buffer(offset, nbytes)).cast("B")

    def find(self, address: int, nbytes: int) -> int:
        """Return the offset of memory at an address of this process, -1 if it is not in the arena."""
        offset = address - self._view.address
        return offset if 0 <= offset <= self._view.nbytes - nbytes else -1

    def offset_of(self, array: NDArray[Any]) -> int | None:
        """Return the offset of this client's slot that ``array`` begins at, None for any other memory."""
        if array.base is None:
            return None  # it owns its memory, which is no slot; reading the address would cost a microsecond
        offset: int = array.__array_interface__["data"][0] - self._view.address
        return offset if self._in_use.get(offset, -1) >= array.nbytes else None

    def release(self, offset: int) -> None:
        """Release a slot that was never used."""
        self._release(offset, 0)

    def release_at_once(self, offset: int) -> None:
        """Release a slot and let the coordinator know now. May be called from a finalizer."""
        self._client.release(offset)
        self._client.flush()

    def _is_crowded(self) -> bool:
        """Return whether large arrays have more than half of the arena."""
        with self._lock:
            while self._ended:
                self._large_bytes -= self._ended.pop()
            return self._large_bytes > self._view.nbytes // 2

    def _allocate(self, sizes: list[int]) -> list[int]:
        self._client.flush()
        while True:
            try:
                offsets: list[int] = self._client.ask(Kind.ALLOCATE, sizes)[2]
                return offsets
            except ArenaFull:
                if not self._release_kept():
                    if not self._collect():
                        raise
                    self._release_kept()

    def _release_kept(self) -> bool:
        """Release slots that are kept for later and those of runs and calls that are dropped; return whether any is free now."""
        before = self._client.releases
        self._client.open_futures.resolve_ended()
        self._client.abandoned.cancel()
        self._client.collect_calls()
        found = sum(each.shed() for each in [*self.shed])
        with self._lock:
            self._keep_returned()
            kept = [*self._kept.clear(), *self._kept_outputs.clear()]
        for offset in kept:
            self._client.release(offset)
        self._client.flush()
        return found > 0 or self._client.releases != before

    def _collect(self) -> bool:
        """End the arrays that a program has in cycles only, such as that of a caught error; return whether there were any.

        A program may fill the arena with arrays that it holds, and then send what finds no room by messages: of its time,
        collections that find nothing take a tenth at most.
        """
        begin = time.monotonic()
        if begin < self._next_collection:
            return False
        before = len(self._in_use)
        gc.collect()
        if len(self._in_use) < before:
            return True
        end = time.monotonic()
        self._next_collection = end + _PAUSES * (end - begin)
        return False

    def _keep_returned(self) -> None:
        """Keep the slots that finalizers have left; the caller holds the lock."""
        while self._returned:
            offset, nbytes, kept = self._returned.pop()
            if not kept.keep(offset, nbytes):
                self._client.release(offset)

    def _on_array_freed(self, offset: int, nbytes: int, kept: KeptSlots | None) -> None:
        """Handle the end of an array. Runs in the garbage collector, so it must not wait for a lock.

        It takes none either: an interrupt between taking a lock and the block that frees it would leave it taken.
        """
        del self._in_use[offset]
        if nbytes >= _LARGE:
            self._ended.append(nbytes)
        if kept is not None:
            returned = self._returned
            waiting = [size for _, size, where in [*returned] if where is kept] if returned else ()
            if len(waiting) < _RETURNED and kept.has_room(nbytes, waiting):
                self._returned.append((offset, nbytes, kept))
                return
        self._release(offset, nbytes)

    def _release(self, offset: int, nbytes: int) -> None:
        self._client.release(offset)
        self._released_bytes += nbytes
        if self._released_bytes >= _BATCH_BYTES or self._client.unreleased >= _BATCH:
            self._released_bytes = 0
            self._client.flush()
