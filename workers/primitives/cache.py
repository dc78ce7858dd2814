"""The primitive cache of a process, as oneDNN's: shared futures under keys, the least recently used out first.

It holds created primitives as data, no engine, no mapped kernel and no scratch memory, in front of a store that other
processes share. A hit takes no lock: each of its steps is one operation of a dictionary, which the interpreter does in
one piece.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

from poolrt.cachestore import CacheStore, CreationFailed, CreationTimeout, Key, StoreError, StoreReadOnly
from poolrt.cachestore.single_flight import Abandoned, SharedFuture

from ..implementations.primitive_desc import PrimitiveDesc
from .cached_primitive import CachedPrimitive
from .entry import Entry, MalformedEntry, parse_entry
from .key import primitive_key

Future: TypeAlias = SharedFuture[CachedPrimitive]
#: Where a primitive may come from, the nearest first. One that is made of others comes from where the farthest does.
_FARTHEST: Final = ("memory", "files", "redis", "waited", "created")


class PrimitiveCache:
    """Futures of created primitives, found by the whole key.

    Whoever calls `get_or_add` and finds nothing has put its own future in, and must give it a result, or else an error
    and then call `remove_if_invalidated`; `fetch` does all of that. What is under way is never evicted: for as long,
    there may be more than the capacity. Safe from many threads; a forked child goes on without what was under way.
    """

    def __init__(
        self,
        capacity: int | None = None,
        store: CacheStore | None = None,
        create: Callable[[PrimitiveDesc], bytes] | None = None,
    ) -> None:
        """Hold at most ``capacity`` primitives, none with 0; unless given, what the environment or the default says.

        ``store`` is `CacheStore.connect()` unless given, ``create`` returns the entry of a missing primitive, unless given
        by `compilers` of this process, in processes of their own. Raises ValueError for a negative capacity.
        """
        self._create = create or _compiled
        self._store = CacheStore.connect() if store is None else store
        self._capacity = _checked(self._store.options.capacity if capacity is None else capacity)
        self._lock = threading.Lock()
        self._futures: OrderedDict[bytes, Future] = OrderedDict()
        this: weakref.ref[PrimitiveCache] = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _begin_anew(this))

    def get_or_add(self, key: Key, future: Future) -> Future | None:
        """Return the future of a key, from now on the most recently used; where there is none, add ``future``, return None.

        With a capacity of 0 nothing is added.
        """
        found = self.get(key)
        if found is None:
            with self._lock:
                found = self._futures.get(key.canonical)
                if found is None and self._capacity > 0:
                    self._futures[key.canonical] = future
                    self._evict()
        return found

    def get(self, key: Key) -> Future | None:
        """Return the future of a key, from now on the most recently used; None where there is none."""
        futures = self._futures
        try:
            found = futures[key.canonical]
            futures.move_to_end(key.canonical)
        except KeyError:  # not there, or evicted at this moment by another thread
            return None
        return found

    def remove_if_invalidated(self, key: Key) -> None:
        """Forget the future of a key if it has failed, so that whoever asks next creates anew."""
        with self._lock:
            found = self._futures.get(key.canonical)
            if found is not None and found.failed():
                del self._futures[key.canonical]

    def fetch(self, pd: PrimitiveDesc, timeout: float | None = None) -> tuple[CachedPrimitive, str]:
        """Return a primitive and where it came from: ``memory``, ``waited``, or as `CacheStore.fetch_or_create` says.

        Nested primitives come from this cache too, each under its own key; the farthest decides what is told.
        Among the threads of this process one asks the store, the others wait for its result or get an equal error; the
        next one who asks tries again. Raises CreationFailed with the creator's type, message and log, CreationTimeout
        after ``timeout`` seconds of waiting (None: the store's ``timeout_s``), and other errors of the store.
        """
        key = primitive_key(pd)
        found = self.get(key)
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
                return self._lead(pd, key, own, limit)
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
        capacity = _checked(capacity)
        with self._lock:
            self._capacity = capacity
            self._evict()

    def get_capacity(self) -> int:
        """Return the most primitives that are held."""
        return self._capacity

    def get_size(self) -> int:
        """Return how many primitives are held, those under way included."""
        return len(self._futures)

    def _lead(self, pd: PrimitiveDesc, key: Key, future: Future, limit: float) -> tuple[CachedPrimitive, str]:
        """Get a primitive from the store for this thread and all that wait for its future."""
        failure: Exception = Abandoned()
        try:
            outcome = self._store.fetch_or_create(key, lambda: self._create(pd), limit)
            entry = self._parsed(pd, key, outcome.value)
            # Created after the outer one, which only needs their keys: no creation waits for another.
            nested = [self.fetch(inner, limit) for inner in pd.nested()]
            primitive = CachedPrimitive(key.canonical, entry, tuple(inner for inner, _ in nested))
        except StoreError as error:
            failure = error.copy()
            raise
        except Exception as error:
            failure = CreationFailed(type(error).__qualname__, str(error), traceback.format_exc())
            raise failure.copy() from error
        else:
            future.set_result(primitive)
            if len(self._futures) > self._capacity:
                with self._lock:
                    self._evict()
            return primitive, max([outcome.source, *(source for _, source in nested)], key=_FARTHEST.index)
        finally:
            if not future.done():
                future.set_exception(failure)
                self.remove_if_invalidated(key)

    def _parsed(self, pd: PrimitiveDesc, key: Key, payload: bytes) -> Entry:
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

    def _evict(self) -> None:
        """Drop the least recently used, but not what is under way. The lock is held."""
        futures = self._futures
        for _ in range(len(futures)):
            if len(futures) <= self._capacity:
                return
            canonical, future = futures.popitem(last=False)
            if not future.done():
                futures[canonical] = future

    def _begin_in_child(self) -> None:
        """Go on without locks and results of threads that do not exist here."""
        ended = [(canonical, future) for canonical, future in self._futures.items() if future.done()]
        self._lock = threading.Lock()
        self._futures = OrderedDict(ended)


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


def _compiled(pd: PrimitiveDesc) -> bytes:
    from .compiler_pool import compilers  # only where an entry is missing

    return compilers().create(pd)


def _checked(capacity: int) -> int:
    if capacity < 0:
        raise ValueError(f"capacity: expect 0 or more, got {capacity}")
    return capacity


def _begin_anew(reference: weakref.ref[PrimitiveCache]) -> None:
    cache = reference()
    if cache is not None:
        cache._begin_in_child()
