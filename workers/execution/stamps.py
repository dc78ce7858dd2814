"""Time stamps as tasks among the regions of an execution, so that no thread waits to learn how long it took.

A native pool's clock works without the interpreter: a thread that computes in Python delays lines, but no stamps.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from functools import partial

from ..engines.object_loader import NativeKernel
from ..threadpools.interface import KERNEL_TYPE, Region, ThreadpoolInterface
from ..verbose.output import verbose

_NAME = "a time stamp"


def stamp(
    regions: Sequence[Region], text: str | None, pool: ThreadpoolInterface, record: Callable[[int], None] | None = None
) -> Sequence[Region]:
    """Return regions for a pool between two time stamps, and a last one that writes the line ``text`` with the time between.

    ``record`` gets the time instead, in nanoseconds. Without a text and ``record`` it returns the regions alone.
    """
    if record is None:
        if text is None:
            return regions
        record = partial(_write, text)
    return _Stamps(record, pool.clock).around(regions)


def _write(text: str, nanoseconds: int) -> None:
    verbose().executed(text, nanoseconds)


class _Stamps:
    """Begin and end of one execution, taken by a native clock or in Python; `error` is what ``record`` raised."""

    def __init__(self, record: Callable[[int], None], clock: NativeKernel | None) -> None:
        self._record = record
        self._clock = clock
        #: Seconds and nanoseconds of the beginning and of the end.
        self._times = (ctypes.c_int64 * 4)()
        start = ctypes.addressof(self._times)
        self._blobs = [(ctypes.c_int64 * 3)(0, 1, start + 16 * end) for end in (0, 1)]
        self.error: BaseException | None = None
        self._callback = KERNEL_TYPE(self._call)
        self._function = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def around(self, regions: Sequence[Region]) -> Sequence[Region]:
        """Return the regions between the stamps, and the line's."""
        # A number in the place of an address says which: 0 the beginning, 1 the line.
        first, last = (Region(self._function, (number,), _NAME, self) for number in (0, 1))
        if self._clock is None:
            return [first, *regions, last]
        begin, end = (Region(self._clock.address, (ctypes.addressof(blob),), _NAME, self) for blob in self._blobs)
        return [begin, *regions, end, last]

    def _call(self, _: int, __: int, last: int | None) -> int:
        try:
            if self._clock is None:
                self._times[3 if last else 1] = time.perf_counter_ns()
            if last:
                s0, ns0, s1, ns1 = self._times
                self._record((s1 - s0) * 1_000_000_000 + ns1 - ns0)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the region
            self.error = error
            return 1
        return 0
