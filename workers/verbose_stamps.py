"""Time stamps as tasks among the regions of an execution, so that nobody waits to learn how long it took."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

from .threadpools.interface import KERNEL_TYPE, Region
from .verbose import verbose


def stamped(regions: Sequence[Region], text: str | None) -> Sequence[Region]:
    """Return regions between two more of one task each: the last writes the line ``text`` with the time between them.

    Without a text they are returned as they are.
    """
    if text is None:
        return regions
    stamps = _Stamps(text)
    return [stamps.region(0), *regions, stamps.region(1)]


class _Stamps:
    """Begin and end of one execution; `error` is what writing the line raised."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._begin = 0
        self.error: BaseException | None = None
        self._callback = KERNEL_TYPE(self._stamp)
        self._function = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def region(self, end: int) -> Region:
        """Return the region of the beginning (0) or the end (1). The number takes the place of an address."""
        return Region(self._function, (end,), "a time stamp", self)

    def _stamp(self, _: int, __: int, end: int | None) -> int:
        now = time.perf_counter_ns()
        try:
            if end:
                verbose().executed(self._text, now - self._begin)
            self._begin = time.perf_counter_ns()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the region
            self.error = error
            return 1
        return 0
