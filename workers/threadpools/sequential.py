"""The threadpool of a stream without one: the calling thread runs every task."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from .interface import Region, ThreadpoolInterface
from .regions import PackedRegions


class SequentialPool(ThreadpoolInterface):
    """Runs tasks in order on the calling thread. Any number of threads may use it; they share nothing."""

    def get_num_threads(self) -> int:
        return 1

    def get_in_parallel(self) -> bool:
        return False

    def parallel_for(self, n: int, fn: Callable[[int, int], None]) -> None:
        for i in range(n):
            fn(i, n)

    def run_regions(self, regions: Sequence[Region]) -> None:
        room = (ctypes.c_int64 * 8)()
        start = ctypes.addressof(room)
        for region, kernel in (regions if isinstance(regions, PackedRegions) else PackedRegions(regions)).calls:
            for blob in region.blobs:
                if kernel(start, start + 32, blob):
                    raise region.failure(room[4])
