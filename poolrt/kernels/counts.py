"""Counts of what became of the kernels of users in this process."""

from __future__ import annotations

from _thread import allocate_lock
from functools import lru_cache
from typing import Final

from poolrt.cachestore.forked_locks import freed_in_children

#: Name -> its meaning.
MEANINGS: Final = {
    "hits": "kernels that came from the store",
    "created": "kernels that this process compiled for all",
    "waited": "kernels that another process compiled meanwhile",
    "failed": "compilations that ended with an error, of this process or of the one that it waited for",
    "fallbacks": "kernels that this process compiled for itself, because the store failed",
}


class KernelCounts:
    """Counts of one process. Any number of threads may use them."""

    def __init__(self) -> None:
        self._lock = freed_in_children(allocate_lock())
        self._counts = dict.fromkeys(MEANINGS, 0)

    def add(self, name: str) -> None:
        """Count one."""
        with self._lock:
            self._counts[name] += 1

    def counts(self) -> dict[str, int]:
        """Return all counts by name."""
        with self._lock:
            return dict(self._counts)


@lru_cache(maxsize=1)
def kernel_counts() -> KernelCounts:
    """Return the counts of this process, made on first use."""
    return KernelCounts()


def stats() -> dict[str, int]:
    """Return how many kernels of this process were hits, created, waited for, failed, and compiled without the store.

    A kernel counts when its object is fetched: once for calls from Python, once for each graph that calls it.
    """
    return kernel_counts().counts()
