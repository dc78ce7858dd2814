"""The binaries that an engine has realized: each once while it is in use, and the last used ones for longer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from poolrt.cachestore.lru import Lru

T = TypeVar("T")


class Realized(Generic[T]):
    """Realized forms under the whole content of their binaries, made one at a time.

    The ``kept`` last used ones outlive their users, so a primitive that is dropped and made again realizes nothing.
    """

    def __init__(self, realize: Callable[[bytes], T], kept: int) -> None:
        self._realize = realize
        self._lock = threading.Lock()
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
