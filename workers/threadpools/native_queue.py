"""The queue that the threads of a native pool share: regions in memory, and the compiled loop over them."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from typing import Final

from ..engines.object_loader import NativeKernel
from .regions import PackedRegions

_LINE: Final = 64
#: Regions that the queue holds before a thread that submits has to wait, a power of two.
CAPACITY: Final = 1024
#: Times that a thread looks for the next region before it sleeps, in all some tens of microseconds.
_SPINS: Final = 1000
#: Words of the queue, each on a cache line of its own.
_ENDED, _SUBMITTED, _, _, _STOP, _RING, _RING_SIZE, _RELEASED = range(8)


class NativeQueue:
    """Regions in the order of their submission. A thread that still runs keeps the queue alive without its pool.

    The queue keeps what an asynchronous region needs until the region has ended. The next thread that submits or waits
    releases it, or a thread of the pool once the pool has been idle for a tenth of a second.
    """

    def __init__(self, loop: NativeKernel, submit: NativeKernel) -> None:
        self._kernels = (loop, submit)
        #: Held while regions are submitted.
        self.lock = threading.Lock()
        #: (number of regions submitted by then, what must live until they have ended), oldest first.
        self._kept: deque[tuple[int, PackedRegions]] = deque()
        self._error: BaseException | None = None
        size = _LINE * (_RELEASED + 1 + CAPACITY)
        self._memory = (ctypes.c_char * (size + _LINE))()
        start = -(-ctypes.addressof(self._memory) // _LINE) * _LINE
        self._words = [ctypes.c_int64.from_address(start + _LINE * i) for i in range(_RELEASED + 1)]
        self._start = start
        self._words[_RING].value = start + _LINE * (_RELEASED + 1)
        self._words[_RING_SIZE].value = CAPACITY

    @property
    def ended(self) -> int:
        """The number of regions that have ended."""
        return self._words[_ENDED].value

    @property
    def submitted(self) -> int:
        """The number of regions submitted."""
        return self._words[_SUBMITTED].value

    def submit(self, regions: PackedRegions, begin: int, count: int) -> None:
        """Append ``count`` regions from number ``begin`` on. The caller holds `lock`, and keeps them until they have ended."""
        self._call(1, self._start, regions.address_of(begin), count)

    def submit_and_keep(self, regions: PackedRegions) -> None:
        """Append regions and keep them until they have ended."""
        with self.lock:
            ended = self._take_ended()
            self._kept.append((self.submitted + len(regions), regions))
            self.submit(regions, 0, len(regions))
        # Outside the lock: a finalizer may use the pool.
        del ended

    def run(self, until: int, helps: bool) -> None:
        """Run tasks, or unless ``helps`` only wait, until ``until`` regions have ended or a slice of time is over."""
        self._call(0, self._start, until, int(helps), _SPINS)

    def serve(self) -> None:
        """Run tasks until `stop`, and those that are queued then."""
        while not self._words[_STOP].value:
            self.run(-1, helps=True)
            # Without waiting: the lock's holder may wait for this thread to make room, or is about to release everything.
            if self.lock.acquire(blocking=False):
                try:
                    ended = self._take_ended()
                finally:
                    self.lock.release()
                del ended
        while self.ended < self.submitted:
            self.run(self.submitted, helps=True)

    def release(self) -> BaseException | None:
        """Release what ended regions needed; return the first error since the last call, if there is one."""
        with self.lock:
            ended = self._take_ended()
            error, self._error = self._error, None
        del ended
        return error

    def stop(self) -> None:
        """Let the threads return once the queue is empty."""
        self._words[_STOP].value = 1
        self._call(1, self._start, 0, 0)

    def _take_ended(self) -> list[PackedRegions]:
        """Remove and return the ended regions, for the caller to drop; remember their first error."""
        ended, found = self.ended, []
        while self._kept and self._kept[0][0] <= ended:
            regions = self._kept.popleft()[1]
            error = regions.take_failure()
            self._error = self._error or error
            found.append(regions)
        self._words[_RELEASED].value = ended
        return found

    def _call(self, kernel: int, *arguments: int) -> None:
        room = (ctypes.c_int64 * 8)()
        start = ctypes.addressof(room)
        blob = (ctypes.c_int64 * (2 + len(arguments)))(0, 1, *arguments)
        if self._kernels[kernel].function(start, start + 32, ctypes.addressof(blob)):
            raise RuntimeError("the region loop failed")
