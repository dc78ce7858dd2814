"""The division of parallel work into jobs before a region is submitted: no job is empty or too short.

Each thread has one job, or fewer threads have one if the work is short. On a pool that balances jobs each thread has
several, so that the other threads can take those of a thread that is held up. If possible, the number of jobs is a
multiple of the threads.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .interface import ThreadpoolInterface

#: Jobs for each thread of a pool that balances them.
_BALANCED: Final = 4


class Jobs(NamedTuple):
    """The number of threads, the most jobs for each, and the shortest job that is worth a thread of its own."""

    threads: int
    each: int = 1
    least_ns: int = 0

    @classmethod
    def on(cls, pool: ThreadpoolInterface) -> Jobs:
        """Return how to divide work for a pool."""
        balances = pool.get_flags() & ThreadpoolInterface.AUTO_BALANCING
        return cls(pool.get_num_threads(), _BALANCED if balances else 1, pool.least_job_ns)

    def cut(self, work: int, nanoseconds: int) -> int:
        """Return the number of jobs, at least 1, for ``work`` items that take ``nanoseconds`` together."""
        worth = max(1, nanoseconds // self.least_ns) if self.least_ns else work
        if worth >= self.threads:
            worth = self.threads * min(self.each, worth // self.threads)
        return max(1, min(work, worth))
