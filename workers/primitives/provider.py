"""The provider of primitives in a process: found in its primitive cache, else in the store, else derived or created, once.

The cache holds created primitives as data, no engine, no mapped kernel and no scratch memory, in front of a store that
processes share. Its eviction policy can be exchanged: see `PrimitiveCache`.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import Any, Final, TypedDict

from poolrt.cachestore import CacheStore, CreationFailed, CreationTimeout, Key, StoreError, StoreReadOnly
from poolrt.cachestore.forked_locks import freed_in_children
from poolrt.cachestore.outcome import Outcome
from poolrt.cachestore.portable_error import describe_exception
from poolrt.cachestore.single_flight import Abandoned, SharedFuture

from ..implementations.primitive_desc import PrimitiveDesc
from .cache import Future, PrimitiveCache
from .cached_primitive import CachedPrimitive
from .derivation import KernelTable
from .entry import Entry, MalformedEntry, parse_entry
from .key import primitive_key
from .policies import LruPrimitiveCache
from .prebuilt import prebuilt_entry

#: Sources of a primitive, the nearest first. The source of one that is made of others is the farthest of theirs.
_SOURCES: Final = ("memory", "derived", "files", "prebuilt", "redis", "waited", "created")


class PrimitiveCacheStats(TypedDict):
    """The result of `primitive_cache_stats`, counted since the cache was installed; nested primitives count too.

    ``hits`` were found created, ``waits`` under creation by another thread, ``misses`` neither: one thread then asked the
    store. ``derived`` are the misses that followed from kernels of other primitives in this process. ``evictions`` are the
    primitives that the cache has dropped by its policy, or for a lower capacity.
    """

    hits: int
    misses: int
    waits: int
    evictions: int
    size: int
    capacity: int
    derived: int


class _Counter:
    """Counts from many threads without a lock: each step is one operation of the interpreter."""

    __slots__ = ("_count", "_lock", "_reads", "add")

    def __init__(self) -> None:
        self._count = count()
        self._lock = freed_in_children(threading.RLock())
        self._reads = 0
        #: Count one.
        self.add = self._count.__next__

    def value(self) -> int:
        """Return how often `add` was called. A reading counts as well, so readings are subtracted."""
        with self._lock:
            self._reads += 1
            return next(self._count) - self._reads + 1


class _Installed:
    """A cache with the counts since it was installed."""

    __slots__ = ("cache", "count_hit", "derived", "hits", "misses", "placed", "size_before", "waits", "withdrawn")

    def __init__(self, cache: PrimitiveCache) -> None:
        self.cache = cache
        self.hits, self.misses, self.waits = _Counter(), _Counter(), _Counter()
        self.count_hit = self.hits.add
        self.derived = _Counter()
        #: Futures added, and those of them that were removed as failed.
        self.placed, self.withdrawn = _Counter(), _Counter()
        self.size_before = cache.get_size()

    def stats(self) -> PrimitiveCacheStats:
        size = self.cache.get_size()
        return PrimitiveCacheStats(
            hits=self.hits.value(),
            misses=self.misses.value(),
            waits=self.waits.value(),
            # What has come and is neither there nor failed: a policy has no way, and no duty, to report it.
            evictions=max(0, self.size_before + self.placed.value() - self.withdrawn.value() - size),
            size=size,
            capacity=self.cache.get_capacity(),
            derived=self.derived.value(),
        )


class PrimitiveProvider:
    """Finds primitives in a cache, asks the store for the others, and creates those that are nowhere.

    Guarantees, with any cache: of several threads that ask for a primitive at once, one asks the store and all others get
    its result or an equal error; the next caller after an error tries again. Any number of threads may use it. A forked
    child goes on without the creations under way.
    """

    def __init__(
        self,
        capacity: int | None = None,
        store: CacheStore | None = None,
        create: Callable[[PrimitiveDesc], bytes] | None = None,
        cache: PrimitiveCache | None = None,
    ) -> None:
        """Hold primitives in ``cache``, by default a `LruPrimitiveCache` of ``capacity`` (the store's option if None).

        ``store`` is by default `CacheStore.connect()`. ``create`` returns the entry of a missing primitive; by default the
        compiler processes of this process make it. Raises ValueError for a negative capacity.
        """
        self._create = create or _compile
        self._creations = _Counter()
        self._store = CacheStore.connect() if store is None else store
        capacity = self._store.options.capacity if capacity is None else capacity
        self._installed = _Installed(LruPrimitiveCache(capacity) if cache is None else cache)
        self._kernels = KernelTable(self.cache.get_capacity())
        #: Futures that threads of this process may have to complete, and whether they are counted as added.
        self._under_way: dict[Future, bool] = {}
        provider: weakref.ref[PrimitiveProvider] = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _begin_in_child(provider))

    @property
    def cache(self) -> PrimitiveCache:
        """The cache in use."""
        return self._installed.cache

    @property
    def store(self) -> CacheStore:
        """The store behind the cache."""
        return self._store

    def creations(self) -> int:
        """Return how many primitives this process has created for all; nested ones count too."""
        return self._creations.value()

    def install(self, cache: PrimitiveCache) -> None:
        """Use another cache from now on, with what it holds; creations under way end in the former one.

        The capacity of the cache also bounds what the store keeps in the memory of this process. Raises TypeError if it is
        no `PrimitiveCache`.
        """
        if not isinstance(cache, PrimitiveCache):
            raise TypeError(f"cache: expect an instance of a subclass of PrimitiveCache, got {cache!r}")
        installed = _Installed(cache)
        self._store.set_memory_capacity(cache.get_capacity())
        self._kernels.set_capacity(cache.get_capacity())
        self._installed = installed

    def set_capacity(self, capacity: int) -> None:
        """Hold at most ``capacity`` primitives in this process, and as many entries of the store; 0 empties both at once.

        Raises ValueError for less than 0, and what a user's cache raises.
        """
        self._installed.cache.set_capacity(capacity)
        self._store.set_memory_capacity(capacity)
        self._kernels.set_capacity(capacity)

    def stats(self) -> PrimitiveCacheStats:
        """Return hits, misses, waits and evictions of the cache, its size and its capacity."""
        return self._installed.stats()

    def fetch(self, pd: PrimitiveDesc, timeout: float | None = None) -> tuple[CachedPrimitive, str]:
        """Return a primitive and its source: ``memory``, ``waited``, ``derived``, or as `CacheStore.fetch_or_create` says.

        One that is not on this node, but whose kernels other primitives of this process have, is derived from them: that
        asks no server, takes no lease and compiles nothing, and the store does not get it.

        Nested primitives come from the cache too, each under its own key; the source is the farthest of all. Raises
        CreationFailed with the creator's type, message and log, CreationTimeout after ``timeout`` seconds of waiting
        (None: the store's ``timeout_s``), and other errors of the store. Errors of a user's cache are passed on; TypeError
        and ValueError if it returns no future, or one of another key.
        """
        key, installed = primitive_key(pd), self._installed
        found = installed.cache.get(key)
        if isinstance(found, SharedFuture):
            primitive = found.result_if_done()
            if primitive is not None and primitive.identity == key.canonical:
                installed.count_hit()
                return primitive, "memory"
        elif found is not None:
            raise _no_future(installed.cache, "get", found)
        return self._fetch_shared(pd, key, installed, timeout)

    def _fetch_shared(
        self, pd: PrimitiveDesc, key: Key, installed: _Installed, timeout: float | None
    ) -> tuple[CachedPrimitive, str]:
        """Lead the creation, or wait for the thread that does."""
        limit, begin = self._store.options.timeout_s if timeout is None else timeout, time.monotonic()
        abandoned: Future | None = None
        while True:
            own = Future()
            self._under_way[own] = False  # before others can see it: a fork may come at any time
            try:
                found = installed.cache.get_or_add(key, own)
                # One that was abandoned and is still there: the cache has not removed it.
                if found is None or found is own or found is abandoned:
                    return self._fetch_as_leader(pd, key, own, installed, limit)
            finally:
                own.abandon()  # if an interrupt came before it was led
                del self._under_way[own]
            if not isinstance(found, SharedFuture):
                raise _no_future(installed.cache, "get_or_add", found)
            done = found.done()
            try:
                primitive = found.result(begin + limit - time.monotonic())
            except Abandoned:
                # The leader was interrupted: lead in its place.
                abandoned = found
                installed.cache.remove_if_invalidated(key)
                continue
            except BaseException as error:
                installed.waits.add()
                if isinstance(error, TimeoutError):
                    raise CreationTimeout(key.digest, time.monotonic() - begin) from None
                raise
            if primitive.identity != key.canonical:
                raise ValueError(
                    f"{type(installed.cache).__name__} returned the future of another key than it was given"
                )
            (installed.hits if done else installed.waits).add()
            return primitive, "memory" if done else "waited"

    def _fetch_as_leader(
        self, pd: PrimitiveDesc, key: Key, future: Future, installed: _Installed, limit: float
    ) -> tuple[CachedPrimitive, str]:
        """Get a primitive from the store for this thread and all that wait for its future."""
        sources: list[str] = []

        def fetch() -> CachedPrimitive:
            try:
                outcome = self._find_or_derive(pd, key, installed)
                if outcome is None:
                    outcome = self._store.fetch_or_create(
                        key,
                        lambda: self._create_entry(pd),
                        limit,
                        keep_in_memory=False,
                        assemble=lambda _: prebuilt_entry(self._store, pd),
                    )
                entry, kernels = self._kernels.share(self._parse(pd, key, outcome.value))
                # After the outer one, which needs only their keys: no creation waits for another.
                nested = [self.fetch(inner, limit) for inner in pd.nested()]
            except StoreError:
                raise
            except Exception as error:
                raise CreationFailed(*describe_exception(error)) from error
            sources.extend([outcome.source, *(source for _, source in nested)])
            inner = tuple(primitive for primitive, _ in nested)
            return CachedPrimitive(key.canonical, entry, inner, outcome.creation_s, len(outcome.value), kernels)

        installed.misses.add()
        held = installed.cache.get_capacity() > 0
        if held:
            installed.placed.add()
            self._under_way[future] = True
        try:
            return future.lead(fetch), max(sources, key=_SOURCES.index)
        finally:
            if held and future.failed():
                installed.withdrawn.add()
            installed.cache.remove_if_invalidated(key)

    def _find_or_derive(self, pd: PrimitiveDesc, key: Key, installed: _Installed) -> Outcome | None:
        """Return the entry that this node has, else the one that follows from the kernels of this process, else None."""
        found = self._store.find_here(key)
        if found is None:
            begin = time.monotonic()
            entry = self._kernels.derive(pd, self._store)
            if entry is not None:
                installed.derived.add()
                seconds = time.monotonic() - begin
                found = Outcome(entry, "derived", seconds, seconds)
        return found

    def _create_entry(self, pd: PrimitiveDesc) -> bytes:
        entry = self._create(pd)
        self._creations.add()
        return entry

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

    def _begin_in_child(self) -> None:
        """Have those that wait for a thread which does not exist here lead in its place."""
        own = threading.get_ident()
        for future in [future for future in self._under_way if future.leader != own]:
            future.abandon_in_child()
            if self._under_way.pop(future):
                self._installed.withdrawn.add()


@lru_cache(maxsize=1)
def primitive_provider() -> PrimitiveProvider:
    """Return the provider of this process, made on first use."""
    return PrimitiveProvider()


def set_primitive_cache(cache: PrimitiveCache) -> None:
    """Hold the primitives of this process in ``cache`` from now on, whose capacity then bounds the process.

    Primitives of the former cache that ``cache`` does not hold come from the store when they are needed again. Counts begin
    at 0. Raises TypeError if it is no `PrimitiveCache`.
    """
    primitive_provider().install(cache)


def primitive_cache_stats() -> PrimitiveCacheStats:
    """Return the counts of this process's primitive cache: see `PrimitiveCacheStats`. `CacheStore.stats` has the store's."""
    return primitive_provider().stats()


def set_primitive_cache_capacity(capacity: int) -> None:
    """Hold at most ``capacity`` primitives in this process from now on; 0 empties its memory at once and keeps nothing.

    Comes before the environment variable ``POOLRT_PRIMITIVE_CACHE_CAPACITY``. The store that processes share, and the
    node's files, have capacities of their own. Raises ValueError for less than 0, and for what is no integer.
    """
    primitive_provider().set_capacity(capacity)


def get_primitive_cache_capacity() -> int:
    """Return the most primitives that this process holds."""
    return primitive_provider().cache.get_capacity()


def get_primitive_cache_size() -> int:
    """Return how many primitives this process holds."""
    return primitive_provider().cache.get_size()


def _no_future(cache: PrimitiveCache, method: str, found: Any) -> TypeError:
    return TypeError(
        f"{type(cache).__name__}.{method} returned {found!r:.100}; return a future that was added, or None"
    )


def _compile(pd: PrimitiveDesc) -> bytes:
    from .compiler_pool import compiler_pool  # only if an entry is missing

    return compiler_pool().create(pd)


def _begin_in_child(reference: weakref.ref[PrimitiveProvider]) -> None:
    provider = reference()
    if provider is not None:
        provider._begin_in_child()
