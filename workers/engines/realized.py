"""What an engine has once for all its users: realized binaries, the last used ones for longer, and resources."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from poolrt.cachestore.forked_locks import freed_in_children
from poolrt.cachestore.lru import Lru

T = TypeVar("T")


class InUse(Generic[T]):
    """Values that their users share: each is made once while it is in use, and released with its last user."""

    def __init__(self) -> None:
        #: Held while a value is made, which may need others.
        self._lock = freed_in_children(threading.RLock())
        self._alive: WeakValueDictionary[Hashable, T] = WeakValueDictionary()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key, made now if nothing uses one. Raises what making it raises."""
        found = self._alive.get(key)
        if found is None:
            with self._lock:
                found = self._alive.get(key)
                if found is None:
                    found = self._alive[key] = make()
        return found

    def values(self) -> list[T]:
        """Return the values in use."""
        return list(self._alive.values())


class Realized(Generic[T]):
    """Realized forms under the whole content of their binaries, made one at a time.

    The ``kept`` last used ones outlive their users, so a primitive that is dropped and made again realizes nothing.
    """

    def __init__(self, realize: Callable[[bytes], T], kept: int) -> None:
        self._realize = realize
        self._lock = freed_in_children(threading.RLock())
        self._alive: WeakValueDictionary[bytes, T] = WeakValueDictionary()
        self._latest: Lru[bytes, T] = Lru(kept)

    def get(self, binary: bytes) -> T:
        """Return the realized form of a binary, made now if it is missing. Raises what realizing it raises."""
        found = self._latest.get(binary)
        if found is None:
            with self._lock:
                found = self._alive.get(binary)
                if found is None:
                    found = self._alive[binary] = self._realize(binary)
            self._latest.put(binary, found)
        return found
