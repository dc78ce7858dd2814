"""How parallel work is cut into jobs, decided before a region is submitted: none of them is empty or too short.

One job a thread, or fewer where the work is short; on a pool that balances them itself several a thread, so that a
thread that is held up leaves its share to the others. Jobs are as many as a multiple of the threads where they can be.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .interface import ThreadpoolInterface

#: Jobs for each thread of a pool that balances them.
_BALANCED: Final = 4


class Jobs(NamedTuple):
    """What decides on jobs: the threads, how many jobs each may have, the shortest that is worth a thread of its own."""

    threads: int
    each: int = 1
    least_ns: int = 0

    @classmethod
    def on(cls, pool: ThreadpoolInterface) -> Jobs:
        """Return how work is cut for a pool."""
        balances = pool.get_flags() & ThreadpoolInterface.AUTO_BALANCING
        return cls(pool.get_num_threads(), _BALANCED if balances else 1, pool.least_job_ns)

    def cut(self, work: int, nanoseconds: int) -> int:
        """Return into how many jobs so many items of work are cut that take so long together, at least one."""
        worth = max(1, nanoseconds // self.least_ns) if self.least_ns else work
        if worth >= self.threads:
            worth = self.threads * min(self.each, worth // self.threads)
        return max(1, min(work, worth))
