"""The primitive cache of a process, as oneDNN's: shared futures under keys, the least recently used evicted first.

It holds created primitives as data, no engine, no mapped kernel and no scratch memory, in front of a store that processes
share. A hit takes no lock: see `Lru`.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

from poolrt.cachestore import CacheStore, CreationFailed, CreationTimeout, Key, StoreError, StoreReadOnly
from poolrt.cachestore.lru import Lru
from poolrt.cachestore.portable_error import describe_exception
from poolrt.cachestore.single_flight import Abandoned, SharedFuture

from ..implementations.primitive_desc import PrimitiveDesc
from .cached_primitive import CachedPrimitive
from .entry import Entry, MalformedEntry, parse_entry
from .key import primitive_key

Future: TypeAlias = SharedFuture[CachedPrimitive]
#: Sources of a primitive, the nearest first. The source of one that is made of others is the farthest of theirs.
_SOURCES: Final = ("memory", "files", "redis", "waited", "created")


class PrimitiveCache:
    """Futures of created primitives, found by the whole key.

    A thread for which `get_or_add` finds nothing has added its own future and leads: it must complete the future, and call
    `remove_if_invalidated` if that was with an error. `fetch` does all of that. Guarantees: a creation under way is never
    evicted; for as long, the cache may exceed its capacity. Any number of threads may use it. A forked child goes on
    without the creations under way.
    """

    def __init__(
        self,
        capacity: int | None = None,
        store: CacheStore | None = None,
        create: Callable[[PrimitiveDesc], bytes] | None = None,
    ) -> None:
        """Hold at most ``capacity`` primitives, none with 0; the default is the store's option.

        ``store`` is by default `CacheStore.connect()`. ``create`` returns the entry of a missing primitive; by default the
        compiler processes of this process make it. Raises ValueError for a negative capacity.
        """
        self._create = create or _compile
        self._store = CacheStore.connect() if store is None else store
        capacity = self._store.options.capacity if capacity is None else capacity
        self._futures: Lru[bytes, Future] = Lru(capacity, evictable=Future.done)
        futures = weakref.ref(self._futures)
        os.register_at_fork(after_in_child=lambda: _begin_in_child(futures))

    def get_or_add(self, key: Key, future: Future) -> Future | None:
        """Return a key's future, from now on the most recently used; if there is none, add ``future`` and return None.

        With a capacity of 0 nothing is added.
        """
        return self._futures.get_or_put(key.canonical, future)

    def get(self, key: Key) -> Future | None:
        """Return a key's future, from now on the most recently used; None if there is none."""
        return self._futures.get(key.canonical)

    def remove_if_invalidated(self, key: Key) -> None:
        """Remove a key's future if it has failed, so that the next caller creates again."""
        self._futures.remove(key.canonical, Future.failed)

    def fetch(self, pd: PrimitiveDesc, timeout: float | None = None) -> tuple[CachedPrimitive, str]:
        """Return a primitive and its source: ``memory``, ``waited``, or as `CacheStore.fetch_or_create` says.

        Nested primitives come from this cache too, each under its own key; the source is the farthest of all. Of several
        threads of this process one asks the store; the others wait for its result or raise an equal error, and the next
        caller tries again. Raises CreationFailed with the creator's type, message and log, CreationTimeout after
        ``timeout`` seconds of waiting (None: the store's ``timeout_s``), and other errors of the store.
        """
        key = primitive_key(pd)
        found = self._futures.get(key.canonical)
        if found is not None:
            primitive = found.result_if_done()
            if primitive is not None:
                return primitive, "memory"
        limit = self._store.options.timeout_s if timeout is None else timeout
        begin = time.monotonic()
        while True:
            own = Future()
            found = self.get_or_add(key, own)
            if found is None:
                return self._fetch_as_leader(pd, key, own, limit)
            source = "memory" if found.done() else "waited"
            try:
                return found.result(begin + limit - time.monotonic()), source
            except Abandoned:
                continue  # the leader was interrupted: lead in its place
            except TimeoutError:
                raise CreationTimeout(key.digest, time.monotonic() - begin) from None

    def set_capacity(self, capacity: int) -> None:
        """Hold at most ``capacity`` primitives from now on, evicting the least recently used; 0 clears and turns it off.

        Raises ValueError for less.
        """
        self._futures.set_capacity(capacity)

    def get_capacity(self) -> int:
        """Return the most primitives that are held."""
        return self._futures.get_capacity()

    def get_size(self) -> int:
        """Return how many primitives are held, those under way included."""
        return len(self._futures)

    def _fetch_as_leader(
        self, pd: PrimitiveDesc, key: Key, future: Future, limit: float
    ) -> tuple[CachedPrimitive, str]:
        """Get a primitive from the store for this thread and all that wait for its future."""
        sources: list[str] = []

        def fetch() -> CachedPrimitive:
            try:
                outcome = self._store.fetch_or_create(key, lambda: self._create(pd), limit)
                entry = self._parse(pd, key, outcome.value)
                # After the outer one, which needs only their keys: no creation waits for another.
                nested = [self.fetch(inner, limit) for inner in pd.nested()]
            except StoreError:
                raise
            except Exception as error:
                raise CreationFailed(*describe_exception(error)) from error
            sources.extend([outcome.source, *(source for _, source in nested)])
            return CachedPrimitive(key.canonical, entry, tuple(inner for inner, _ in nested))

        try:
            return future.lead(fetch), max(sources, key=_SOURCES.index)
        finally:
            self.remove_if_invalidated(key)
            self._futures.evict()

    def _parse(self, pd: PrimitiveDesc, key: Key, payload: bytes) -> Entry:
        try:
            entry = parse_entry(payload)
            if entry.nested != tuple(primitive_key(inner).canonical for inner in pd.nested()):
                raise MalformedEntry("its nested primitives are not those that the descriptor names")
            return entry
        except MalformedEntry:
            try:
                self._store.remove(key)
            except StoreReadOnly:
                pass  # it stays as it is for everybody who has it
            raise


@lru_cache(maxsize=1)
def primitive_cache() -> PrimitiveCache:
    """Return the cache of this process, made on first use."""
    return PrimitiveCache()


def set_primitive_cache_capacity(capacity: int) -> None:
    """Hold at most ``capacity`` primitives in this process from now on; 0 clears its cache and turns it off.

    Comes before the environment variable ``POOLRT_PRIMITIVE_CACHE_CAPACITY``. The store that processes share has a
    capacity of its own. Raises ValueError for less than 0.
    """
    primitive_cache().set_capacity(capacity)


def get_primitive_cache_capacity() -> int:
    """Return the most primitives that this process holds."""
    return primitive_cache().get_capacity()


def get_primitive_cache_size() -> int:
    """Return how many primitives this process holds."""
    return primitive_cache().get_size()


def _compile(pd: PrimitiveDesc) -> bytes:
    from .compiler_pool import compiler_pool  # only if an entry is missing

    return compiler_pool().create(pd)


def _begin_in_child(reference: weakref.ref[Lru[bytes, Future]]) -> None:
    futures = reference()
    if futures is not None:
        futures.begin_in_child()
