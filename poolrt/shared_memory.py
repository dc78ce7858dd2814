"""The client's part of the arena: slots that it holds leases on, and NumPy arrays in them.

A slot is released when its array and every view of it are gone. Slots of inputs are kept for the next input of their
size, so that a steady stream of runs sends no requests for memory and writes to warm memory only.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from poolrt.arena import slot_size
from poolrt.errors import ArenaFull
from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.memory.arena_view import ArenaView

from .client import Client
from .dropped_interrupts import resend_dropped_interrupts

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Most bytes of slots kept for later inputs, and the fraction of the arena that they may be.
_KEPT: Final = 256 * 1024 * 1024
_KEPT_PART: Final = 8
#: Released slots, or bytes of them, that are sent in a message of their own; fewer wait for the next message.
_BATCH: Final = 16
_BATCH_BYTES: Final = 1024 * 1024
#: Slots whose arrays have ended since slots were last taken: each end looks at all of them.
_RETURNED: Final = 256


class SharedMemory:
    """Maps the arena of a connection and manages this client's slots. Safe for use by several threads."""

    def __init__(self, client: Client, fd: int) -> None:
        """Map the arena behind ``fd``, which is closed."""
        try:
            self._view = ArenaView(fd)
        finally:
            os.close(fd)
        resend_dropped_interrupts()  # slots are released in finalizers
        self._client = client
        self._lock = threading.Lock()
        self._kept: dict[int, list[int]] = {}
        self._kept_bytes = 0
        #: Slots to keep, with the bytes of their arrays, that finalizers have appended: these take no lock.
        self._returned: list[tuple[int, int]] = []
        self._kept_limit = min(_KEPT, self._view.nbytes // _KEPT_PART)
        #: Offset -> usable bytes, of slots that hold an array of this client.
        self._in_use: dict[int, int] = {}
        self._released_bytes = 0

    def take(self, sizes: Sequence[int]) -> list[int]:
        """Return the offsets of slots for tensors of ``sizes`` bytes. Raises ArenaFull."""
        found: list[int] = []
        missing: list[int] = []
        with self._lock:
            self._keep_returned()
            for nbytes in sizes:
                kept = self._kept.get(slot_size(nbytes))
                if kept:
                    found.append(kept.pop())
                    self._kept_bytes -= slot_size(nbytes)
                else:
                    found.append(-1)
                    missing.append(nbytes)
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
        size = slot_size(nbytes)
        with self._lock:
            self._keep_returned()
            if self._kept_bytes + size <= self._kept_limit:
                self._keep(offset, size)
                return
        self._release(offset, nbytes)

    def array(self, offset: int, shape: Sequence[int], dtype: str, *, keep: bool = False) -> NDArray[Any]:
        """Return a writable array, row-major, that owns this client's lease on a slot.

        The slot is released, or with ``keep`` kept for later inputs, when the array and all views of it are gone.
        """
        import numpy

        kind = numpy.dtype(dtype)
        count = 1
        for extent in shape:
            count *= extent
        nbytes = count * kind.itemsize
        # All views refer to the buffer object, so it ends with the last of them.
        buffer = self._view.buffer(offset, max(nbytes, 1))
        self._in_use[offset] = nbytes
        weakref.finalize(buffer, self._on_array_freed, offset, nbytes, keep).atexit = False
        return numpy.frombuffer(buffer, kind, count).reshape(shape)

    def bytes_at(self, offset: int, nbytes: int) -> NDArray[Any]:
        """Return a writable view on a slot that the caller keeps."""
        import numpy

        return numpy.frombuffer(self._view.buffer(offset, max(nbytes, 1)), numpy.uint8, nbytes)

    def offset_of(self, array: NDArray[Any]) -> int | None:
        """Return the offset of this client's slot that ``array`` begins at, None for any other memory."""
        if array.base is None:
            return None  # it owns its memory, which is no slot; reading the address would cost a microsecond
        offset: int = array.__array_interface__["data"][0] - self._view.address
        return offset if self._in_use.get(offset, -1) >= array.nbytes else None

    def release(self, offset: int) -> None:
        """Release a slot that was never used."""
        self._release(offset, 0)

    def _allocate(self, sizes: list[int]) -> list[int]:
        self._client.flush()
        while True:
            try:
                offsets: list[int] = self._client.ask(Kind.ALLOCATE, sizes)[2]
                return offsets
            except ArenaFull:
                if not self._release_kept():
                    raise

    def _release_kept(self) -> bool:
        """Release the slots kept for later; return whether there were any."""
        with self._lock:
            self._keep_returned()
            kept = [offset for offsets in self._kept.values() for offset in offsets]
            self._kept.clear()
            self._kept_bytes = 0
        for offset in kept:
            self._client.release(offset)
        self._client.flush()
        return bool(kept)

    def _keep(self, offset: int, size: int) -> None:
        self._kept.setdefault(size, []).append(offset)
        self._kept_bytes += size

    def _keep_returned(self) -> None:
        """Keep the slots that finalizers have left; the caller holds the lock."""
        while self._returned:
            offset, nbytes = self._returned.pop()
            self._keep(offset, slot_size(nbytes))

    def _on_array_freed(self, offset: int, nbytes: int, keep: bool) -> None:
        """Handle the end of an array. Runs in the garbage collector, so it must not wait for a lock.

        It takes none either: an interrupt between taking a lock and the block that frees it would leave it taken.
        """
        del self._in_use[offset]
        if keep and len(self._returned) < _RETURNED:
            waiting = sum(slot_size(each) for _, each in [*self._returned])
            if self._kept_bytes + waiting + slot_size(nbytes) <= self._kept_limit:
                self._returned.append((offset, nbytes))
                return
        self._release(offset, nbytes)

    def _release(self, offset: int, nbytes: int) -> None:
        self._client.release(offset)
        self._released_bytes += nbytes
        if self._released_bytes >= _BATCH_BYTES or self._client.unreleased >= _BATCH:
            self._released_bytes = 0
            self._client.flush()
