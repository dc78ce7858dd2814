"""The division of parallel work into jobs before a region is submitted: no job is empty or too short.

Each thread has one job, or fewer threads have one if the work is short. On a pool that balances jobs each of several
threads has more than one, so that the other threads can take those of a thread that is held up. If possible, the number
of jobs is a multiple of the threads. Amid other regions, whose threads are awake, each thread may have a job of half the
shortest. A primitive's attribute `jobs`, or else the number that is set for the process, is used instead of what follows
from the pool; short work still gets fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..desc.attributes import PrimitiveAttr
from .interface import ThreadpoolInterface

#: Jobs for each thread of a pool that balances them.
_BALANCED: Final = 4


class Jobs(NamedTuple):
    """The number of threads, the most jobs for each, and the shortest job that is worth a thread of its own.

    ``number``, if it is not 0, is used instead of the first two. For a region ``amid_others``, half the shortest job is
    worth a thread.
    """

    threads: int
    each: int = 1
    least_ns: int = 0
    number: int = 0
    amid_others: bool = False

    @classmethod
    def on(cls, pool: ThreadpoolInterface, number: int = 0) -> Jobs:
        """Return how to divide work for a pool; ``number`` is a primitive's own, 0 if it has none."""
        balances = pool.get_flags() & ThreadpoolInterface.AUTO_BALANCING
        number = number or get_default_jobs()
        return cls(pool.get_num_threads(), _BALANCED if balances else 1, pool.least_job_ns, number)

    def cut(self, work: int, nanoseconds: int) -> int:
        """Return the number of jobs, at least 1, for ``work`` items that take ``nanoseconds`` together."""
        worth = max(1, nanoseconds // self.least_ns) if self.least_ns else work
        if self.number:
            worth = min(worth, self.number)
        elif self.threads == 1:
            worth = 1
        elif worth >= self.threads:
            worth = self.threads * min(self.each, worth // self.threads)
        elif self.amid_others and self.least_ns:
            worth = max(1, min(self.threads, 2 * nanoseconds // self.least_ns))
        return max(1, min(work, worth))


class JobsOnPools:
    """How work is divided for each of some pools now; asks pools for threads and flags only if these can change."""

    def __init__(self, pools: Sequence[ThreadpoolInterface]) -> None:
        self._pools = pools
        self._is_constant = all(type(pool).IS_CONSTANT for pool in pools)
        #: Its ``number`` is the number of jobs that is set for this process.
        self.default: Final = default_jobs()
        #: What was returned last, and the same with each pool.
        self._last: tuple[tuple[Jobs, ...], list[tuple[ThreadpoolInterface, Jobs]]] | None = None

    def current(self) -> tuple[Jobs, ...]:
        """Return how to divide work for each pool: the same object as the last time if nothing has changed."""
        last = self._last
        if last is not None and self._is_constant:
            number = self.default.number
            for pool, known in last[1]:
                if pool.least_job_ns != known.least_ns or known.number != number:
                    break
            else:
                return last[0]
        found = tuple(Jobs.on(pool) for pool in self._pools)
        if last is not None and found == last[0]:
            return last[0]
        self._last = found, list(zip(self._pools, found, strict=True))
        return found

    def has_changed(self, known: tuple[Jobs, ...]) -> bool:
        """Return whether `current` returns something else now than an object that it has returned."""
        return self.current() is not known

    def fixed(self, known: tuple[Jobs, ...]) -> list[tuple[ThreadpoolInterface, int]] | None:
        """Return each pool with its shortest job: ``known`` is right while these and the set number stay; None: ask."""
        return (
            [(pool, jobs.least_ns) for pool, jobs in zip(self._pools, known, strict=True)]
            if self._is_constant
            else None
        )


class DefaultJobs:
    """The number of jobs that is set for this process, 0 if none is."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


@lru_cache(maxsize=1)
def default_jobs() -> DefaultJobs:
    """Return what has the number of jobs that is set for this process, as ``number``, 0 if none is."""
    return DefaultJobs()


def set_default_jobs(jobs: int) -> None:
    """Cut each parallel region of this process into at most ``jobs`` jobs from now on; 0 leaves it to the threadpool.

    A primitive's attribute ``jobs`` takes precedence. Short work gets fewer jobs: see `ThreadpoolInterface.least_job_ns`.
    Raises ValueError for another value than an integer from 0 to 4096.
    """
    default_jobs().number = PrimitiveAttr(jobs=jobs).jobs


def get_default_jobs() -> int:
    """Return the number of jobs that is set for this process, 0 if none is."""
    return default_jobs().number
