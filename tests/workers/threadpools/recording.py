"""Records which thread runs each part of a primitive's regions."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from poolrt.workers.threadpools.interface import KERNEL_TYPE, Region, ThreadpoolInterface


class Recorded:
    """Parts that have run, with their threads, by region in the order of submission."""

    def __init__(self, meet: Callable[[], object]) -> None:
        self.parts: list[list[int]] = []
        self._meet = meet

    def regions(self, regions: Sequence[Region]) -> list[Region]:
        """Return the regions with tasks that record their threads, meet others, and run."""
        return [self._region(region) for region in regions]

    def _region(self, region: Region) -> Region:
        ran: list[int] = []
        self.parts.append(ran)
        kernel = KERNEL_TYPE(region.function)

        def part(ret: Any, exc: Any, blob: Any) -> int:
            ran.append(threading.get_ident())
            # Of each region, the first two parts that begin do so at the same time.
            if len(region.blobs) > 1 and len(ran) <= 2:
                self._meet()
            status: int = kernel(ret, exc, blob)
            return status

        callback = KERNEL_TYPE(part)
        address = ctypes.cast(callback, ctypes.c_void_p).value or 0
        return Region(address, region.blobs, region.name, (callback, region))


@contextmanager
def recorded(pool: ThreadpoolInterface, seconds: float) -> Iterator[Recorded]:
    """Record what is submitted in the block. Two parts of each region must begin at the same time, within ``seconds``."""
    meeting = threading.Barrier(2, timeout=seconds)
    found = Recorded(meeting.wait)
    run_regions = pool.run_regions
    pool.run_regions = lambda regions: run_regions(found.regions(regions))  # type: ignore[method-assign]
    try:
        yield found
    finally:
        del pool.run_regions
