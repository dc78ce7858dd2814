"""What an engine has realized: each binary once while it is in use, and the latest ones beyond that."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class Realized(Generic[T]):
    """Realized forms by the whole content of their binaries, made one at a time.

    The ``kept`` last used ones outlive their users: a primitive that is dropped and asked for again costs nothing anew.
    """

    def __init__(self, realize: Callable[[bytes], T], kept: int) -> None:
        self._realize = realize
        self._kept = kept
        self._lock = threading.Lock()
        self._alive: WeakValueDictionary[bytes, T] = WeakValueDictionary()
        self._latest: OrderedDict[bytes, T] = OrderedDict()

    def get(self, binary: bytes) -> T:
        """Return the realized form of a binary, made now if it is not there. Raises what making it raises."""
        try:
            found = self._latest[binary]
            self._latest.move_to_end(binary)
        except KeyError:  # not there, or dropped at this moment by another thread
            return self._make(binary)
        return found

    def _make(self, binary: bytes) -> T:
        with self._lock:
            found = self._alive.get(binary)
            if found is None:
                found = self._alive[binary] = self._realize(binary)
            self._latest[binary] = found
            while len(self._latest) > self._kept:
                self._latest.popitem(last=False)
            return found
