"""Counts of what became of the functions that share the cache, and the one warning if sharing failed."""

from __future__ import annotations

import threading
import warnings
from functools import lru_cache
from typing import Final

from poolrt.cachestore.forked_locks import freed_in_children

#: Name -> its meaning.
MEANINGS: Final = {
    "hits": "overloads that came from the store",
    "created": "overloads that this process compiled for all",
    "waited": "overloads that another process compiled meanwhile",
    "failed": "compilations that ended with an error, of this process or of the one that it waited for",
    "unshared": "overloads that each process compiles for itself, because of what they depend on",
    "fallbacks": "overloads that plain Numba compiled, because the store or Numba's internals failed",
}


class NotShared(RuntimeWarning):
    """Functions are compiled by plain Numba, because the store or Numba's internals are not as expected."""


class Counters:
    """Counts of one process. Any number of threads may use them."""

    def __init__(self) -> None:
        self._lock = freed_in_children(threading.Lock())
        self._counts = dict.fromkeys(MEANINGS, 0)
        self._reasons: dict[str, str] = {}
        self._warned = False

    def add(self, name: str) -> None:
        """Count one."""
        with self._lock:
            self._counts[name] += 1

    def explain(self, function: str, reason: str) -> None:
        """Count a function that is not shared, and keep the reason of its last overload."""
        with self._lock:
            self._counts["unshared"] += 1
            self._reasons[function] = reason

    def fall_back(self, reason: str) -> None:
        """Count an overload for plain Numba; the first one of the process warns."""
        with self._lock:
            self._counts["fallbacks"] += 1
            warned, self._warned = self._warned, True
        if not warned:
            text = f"functions are compiled by plain Numba: {reason}; poolrt.numba.stats() counts them"
            warnings.warn(text, NotShared, stacklevel=4)

    def counts(self) -> dict[str, int]:
        """Return all counts by name."""
        with self._lock:
            return dict(self._counts)

    def reasons(self) -> dict[str, str]:
        """Return why functions are not shared, by name."""
        with self._lock:
            return dict(self._reasons)


@lru_cache(maxsize=1)
def counters() -> Counters:
    """Return the counts of this process, made on first use."""
    return Counters()
