"""The store that users' functions of a process share."""

from __future__ import annotations

from functools import lru_cache

from poolrt.cachestore import CacheStore


@lru_cache(maxsize=1)
def process_store() -> CacheStore:
    """Return the store that the environment names, connected on first use."""
    return CacheStore.connect()
