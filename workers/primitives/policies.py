"""The primitive caches of poolrt: least recently used, and least seconds to create again per byte.

Guarantees of both: a hit takes no lock (see `Lru`). A future under way is never evicted; for as long, the cache may
exceed its capacity. A forked child goes on without the futures under way in its parent.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

from poolrt.cachestore import Key
from poolrt.cachestore.lru import Lru
from poolrt.cachestore.options import capacity_from_environment

from .cache import Future, PrimitiveCache


class LruPrimitiveCache(PrimitiveCache):
    """Evict the least recently used primitive first."""

    def __init__(self, capacity: int | None = None) -> None:
        """Hold at most ``capacity`` primitives, none with 0; by default ``POOLRT_PRIMITIVE_CACHE_CAPACITY``, else 1024.

        Raises ValueError for a negative capacity and for one that is no integer.
        """
        self._futures: Lru[bytes, Future] = Lru(
            capacity_from_environment() if capacity is None else capacity, evictable=Future.done, rank=self._rank()
        )
        self._values = self._futures.values
        futures = weakref.ref(self._futures)
        os.register_at_fork(after_in_child=lambda: _begin_in_child(futures))

    def get(self, key: Key) -> Future | None:
        """Return a key's future, from now on the most recently used; None if there is none."""
        # As `Lru.get` does, without the call: each hit in the cache comes here.
        futures, canonical = self._values, key.canonical
        try:
            future = futures[canonical]
            futures.move_to_end(canonical)
        except KeyError:  # not there, or evicted at this moment by another thread
            return None
        return future

    def add(self, key: Key, future: Future) -> None:
        """Hold a future, the most recently used, in the place of the key's former one; nothing with a capacity of 0."""
        self._futures.put(key.canonical, future)

    def get_or_add(self, key: Key, future: Future) -> Future | None:
        """Return a key's future, from now on the most recently used; if there is none, add ``future`` and return None.

        With a capacity of 0 nothing is added.
        """
        return self._futures.get_or_put(key.canonical, future)

    def remove_if_invalidated(self, key: Key) -> None:
        """Remove a key's future if it has failed; evict what exceeds the capacity because it was under way."""
        self._futures.remove(key.canonical, Future.failed)
        self._futures.evict()

    def set_capacity(self, capacity: int) -> None:
        """Hold at most ``capacity`` primitives from now on, evicting the others; 0 clears the cache and turns it off.

        Raises ValueError for less, and for what is no integer.
        """
        self._futures.set_capacity(capacity)

    def get_capacity(self) -> int:
        """Return the most primitives that are held."""
        return self._futures.get_capacity()

    def get_size(self) -> int:
        """Return how many primitives are held, those under way included."""
        return len(self._futures)

    def _rank(self) -> Callable[[Future], float] | None:
        """Return the rank of a future, the least of which is evicted first; None: all are equal."""
        return None


class CostPrimitiveCache(LruPrimitiveCache):
    """Evict the primitive first that takes the least seconds to create again per byte of its entry.

    Of equal ones, the least recently used goes. The seconds are those of the creation itself, on any host; nested
    primitives have their own. An eviction looks at each primitive held. Limitation: an expensive primitive that is not
    used any more stays.
    """

    def _rank(self) -> Callable[[Future], float]:
        return _seconds_per_byte


def _seconds_per_byte(future: Future) -> float:
    primitive = future.result_if_done()
    return primitive.creation_s / max(1, primitive.nbytes) if primitive is not None else 0.0


def _begin_in_child(reference: weakref.ref[Lru[bytes, Future]]) -> None:
    futures = reference()
    if futures is not None:
        futures.begin_in_child()
