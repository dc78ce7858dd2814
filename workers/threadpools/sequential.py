"""The threadpool of a stream without one: the calling thread runs every task."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .interface import Region, ThreadpoolInterface
from .regions import PackedRegions


class SequentialPool(ThreadpoolInterface):
    """Runs tasks in order on the calling thread. Any number of threads may use it; they share nothing."""

    IS_CONSTANT = True

    def get_num_threads(self) -> int:
        return 1

    def get_in_parallel(self) -> bool:
        return False

    def parallel_for(self, n: int, fn: Callable[[int, int], None]) -> None:
        for i in range(n):
            fn(i, n)

    def run_regions(self, regions: Sequence[Region]) -> None:
        (regions if isinstance(regions, PackedRegions) else PackedRegions(regions)).run_all()
