"""Time stamps as tasks among the regions of an execution, so that nobody waits to learn how long it took.

A native pool's clock is read without the interpreter: a thread that computes in Python delays lines, but no stamps.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

from ..engines.object_loader import NativeKernel
from ..threadpools.interface import KERNEL_TYPE, Region, ThreadpoolInterface
from ..verbose.output import verbose

_NAME = "a time stamp"


def stamped(regions: Sequence[Region], text: str | None, pool: ThreadpoolInterface) -> Sequence[Region]:
    """Return regions for a pool between more of one task each; the last writes the line ``text`` with the time between.

    Without a text they are returned as they are.
    """
    if text is None:
        return regions
    return _NativeStamps(text, pool.clock).around(regions) if pool.clock else _Stamps(text).around(regions)


class _Stamps:
    """Begin and end of one execution; `error` is what writing the line raised."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._begin = 0
        self.error: BaseException | None = None
        self._callback = KERNEL_TYPE(self._call)
        self._function = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def around(self, regions: Sequence[Region]) -> Sequence[Region]:
        """Return the regions with begin and end."""
        return [self._python(0), *regions, self._python(1)]

    def _python(self, end: int) -> Region:
        """Return the region of the beginning (0) or the end (1). The number takes the place of an address."""
        return Region(self._function, (end,), _NAME, self)

    def _taken(self, now: int) -> int:
        """Return the nanoseconds from beginning to end."""
        return now - self._begin

    def _call(self, _: int, __: int, end: int | None) -> int:
        now = time.perf_counter_ns()
        try:
            if end:
                verbose().executed(self._text, self._taken(now))
            self._begin = time.perf_counter_ns()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the region
            self.error = error
            return 1
        return 0


class _NativeStamps(_Stamps):
    """The same with a native clock; only the line is written in Python."""

    def __init__(self, text: str, clock: NativeKernel) -> None:
        super().__init__(text)
        self._clock = clock
        self._times = (ctypes.c_int64 * 4)()
        start = ctypes.addressof(self._times)
        self._blobs = [(ctypes.c_int64 * 3)(0, 1, start + 16 * end) for end in (0, 1)]

    def around(self, regions: Sequence[Region]) -> Sequence[Region]:
        """Return the regions with begin, end and the line."""
        begin, end = (Region(self._clock.address, (ctypes.addressof(blob),), _NAME, self) for blob in self._blobs)
        return [begin, *regions, end, self._python(1)]

    def _taken(self, now: int) -> int:
        s0, ns0, s1, ns1 = self._times
        return (s1 - s0) * 1_000_000_000 + ns1 - ns0
