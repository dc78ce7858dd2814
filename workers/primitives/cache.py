"""The interface of a primitive cache: shared futures of created primitives under keys, as in oneDNN.

A cache has an eviction policy and nothing else: `PrimitiveProvider` asks the store, creates, and counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

from poolrt.cachestore import Key
from poolrt.cachestore.single_flight import SharedFuture

from .cached_primitive import CachedPrimitive

Future: TypeAlias = SharedFuture[CachedPrimitive]


class PrimitiveCache(ABC):
    """Hold futures of primitives under their keys, with an eviction policy of one's own.

    Subclass it and pass an instance to `set_primitive_cache`. Any number of threads call its methods at once. A key is
    hashable and equals other keys with the same ``key.canonical``. A future is under way until ``future.done()`` is True;
    then ``future.failed()`` is True after an error; otherwise ``future.result(0)`` returns a `CachedPrimitive`, with
    ``creation_s`` and ``nbytes`` for policies. An error that a method raises goes to the caller who asked for a primitive.

    A thread for which `get_or_add` adds its own future creates the primitive, and completes the future. Then it calls
    `remove_if_invalidated`, after a success too. A policy may evict futures under way; a thread that asks for such a key
    again waits in the store for the same creation.
    """

    @abstractmethod
    def get(self, key: Key) -> Future | None:
        """Return a key's future; None if there is none."""

    @abstractmethod
    def add(self, key: Key, future: Future) -> None:
        """Hold a future in the place of the key's former one; evict others beyond the capacity. Add none if that is 0."""

    @abstractmethod
    def get_or_add(self, key: Key, future: Future) -> Future | None:
        """Return a key's future; if there is none, add ``future`` and return None. Of several threads, one adds its own."""

    @abstractmethod
    def remove_if_invalidated(self, key: Key) -> None:
        """Remove a key's future if it has failed, so that the next caller creates again."""

    @abstractmethod
    def set_capacity(self, capacity: int) -> None:
        """Hold at most ``capacity`` primitives from now on; evict the others. Raise ValueError for less than 0."""

    @abstractmethod
    def get_capacity(self) -> int:
        """Return the most primitives that are held."""

    @abstractmethod
    def get_size(self) -> int:
        """Return how many primitives are held, those under way included."""
