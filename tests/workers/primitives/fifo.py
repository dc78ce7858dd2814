"""A policy as a user writes one against the interface: first in, first out. What is under way stays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from poolrt import PrimitiveCache
from poolrt.cachestore import Key
from poolrt.workers.primitives.cache import Future
from poolrt.workers.primitives.cached_primitive import CachedPrimitive
from poolrt.workers.primitives.entry import Entry

Policy: TypeAlias = Callable[[int], PrimitiveCache]


def completed(name: str, creation_s: float = 0.0, nbytes: int = 0) -> tuple[Key, Future]:
    """Return a key and a future that has its result."""
    key, future = Key({"primitive": name}), Future()
    future.set_result(CachedPrimitive(key.canonical, Entry(name, "cpu", (), (), (), b"", 0), (), creation_s, nbytes))
    return key, future


class Fifo(PrimitiveCache):
    """Evict the future first that came first."""

    def __init__(self, capacity: int = 16) -> None:
        self._lock = threading.Lock()
        self._futures: dict[Key, Future] = {}
        self.set_capacity(capacity)

    def get(self, key: Key) -> Future | None:
        return self._futures.get(key)

    def add(self, key: Key, future: Future) -> None:
        with self._lock:
            self._futures.pop(key, None)
            if self._capacity:
                self._futures[key] = future
                self._evict()

    def get_or_add(self, key: Key, future: Future) -> Future | None:
        with self._lock:
            found = self._futures.get(key)
            if found is None and self._capacity:
                self._futures[key] = future
                self._evict()
            return found

    def remove_if_invalidated(self, key: Key) -> None:
        with self._lock:
            future = self._futures.get(key)
            if future is not None and future.failed():
                del self._futures[key]
            self._evict()

    def set_capacity(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f"capacity: expect 0 or more, got {capacity}")
        with self._lock:
            self._capacity = capacity
            self._evict()

    def get_capacity(self) -> int:
        return self._capacity

    def get_size(self) -> int:
        return len(self._futures)

    def _evict(self) -> None:
        ended = [key for key, future in self._futures.items() if future.done()]
        for key in ended[: max(0, len(self._futures) - self._capacity)]:
            del self._futures[key]


class Careless(PrimitiveCache):
    """As short as a policy can be: it evicts what is under way, returns the future that it has just added, checks nothing."""

    def __init__(self, capacity: int = 1) -> None:
        self._futures: dict[bytes, Future] = {}
        self._capacity = capacity

    def get(self, key: Key) -> Future | None:
        return self._futures.get(key.canonical)

    def add(self, key: Key, future: Future) -> None:
        while len(self._futures) >= self._capacity and self._futures:
            self._futures.pop(next(iter(self._futures)), None)
        self._futures[key.canonical] = future

    def get_or_add(self, key: Key, future: Future) -> Future | None:
        if key.canonical not in self._futures:
            self.add(key, future)
        return self._futures.get(key.canonical)

    def remove_if_invalidated(self, key: Key) -> None:
        future = self._futures.get(key.canonical)
        if future is not None and future.failed():
            self._futures.pop(key.canonical, None)

    def set_capacity(self, capacity: int) -> None:
        self._capacity = capacity

    def get_capacity(self) -> int:
        return self._capacity

    def get_size(self) -> int:
        return len(self._futures)
