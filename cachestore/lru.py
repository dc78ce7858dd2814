"""The least-recently-used cache: values under keys, bounded in number and, where the owner weighs them, in weight.

Guarantees: a hit takes no lock. Each of its steps is one operation of an `OrderedDict`, which the interpreter does in
one piece as long as the keys' hash and equality are its own. Writers take one lock, and a signal's handler may write amid
what another call of its thread writes. An evicted value is dropped after the lock is released, so its finalizer may use the
cache. A value in flight (see `evictable`) is never evicted; for as long, the cache may hold more than its capacity.
"""

from __future__ import annotations

import operator
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from .forked_locks import freed_in_children

K = TypeVar("K")
V = TypeVar("V")


def checked_capacity(capacity: object, name: str = "capacity") -> int:
    """Return a capacity as an int. Raises ValueError, with its name, for less than 0 and for what is no integer."""
    try:
        number = operator.index(capacity)  # type: ignore[arg-type] # raises TypeError
    except TypeError:
        number = -1
    if number < 0 or isinstance(capacity, bool):
        raise ValueError(f"{name}: expect 0 or more, got {capacity!r}")
    return number


def _weightless(value: object) -> int:
    return 0


class Lru(Generic[K, V]):
    """Hold at most ``capacity`` values, and values of at most ``max_weight`` together; 0 of either holds none.

    ``weigh`` returns a value's weight, such as its bytes; it must not change. ``evictable`` returns False for a value
    in flight. With ``rank``, the values of the least rank are evicted first, of equal ones the least recently used; an
    eviction then looks at all values. None of them may use the cache. Safe from many threads.
    """

    def __init__(
        self,
        capacity: int,
        max_weight: int | None = None,
        weigh: Callable[[V], int] = _weightless,
        evictable: Callable[[V], bool] | None = None,
        rank: Callable[[V], float] | None = None,
    ) -> None:
        """Raise ValueError for a negative capacity, and for one that is no integer."""
        #: The values, the least recently used first. A hit that is too hot for `get` may read them and call
        #: ``move_to_end``, both of which raise KeyError; all else goes through the methods.
        self.values: OrderedDict[K, V] = OrderedDict()
        self.weight = 0
        self._max_weight = max_weight
        self._weigh = weigh
        self._evictable = evictable
        self._rank = rank
        self._lock = freed_in_children(threading.RLock())
        self.set_capacity(capacity)

    def get(self, key: K) -> V | None:
        """Return a value, from now on the most recently used; None where there is none."""
        try:
            value = self.values[key]
            self.values.move_to_end(key)
        except KeyError:  # not there, or evicted at this moment by another thread
            return None
        return value

    def put(self, key: K, value: V) -> list[V]:
        """Hold a value in the place of the key's former one; return the values evicted for it.

        One that is heavier than all may be together is not held, nor is any with a capacity of 0.
        """
        with self._lock:
            former = self._pop(key)
            evicted = self._add(key, value)
        del former  # only now: its finalizer may use the cache
        return evicted

    def get_or_put(self, key: K, value: V) -> V | None:
        """Return the key's value, now the most recently used; if there is none, hold ``value`` and return None."""
        found = self.get(key)
        if found is None:
            with self._lock:
                found = self.values.get(key)
                evicted = self._add(key, value) if found is None else []
            del evicted
        return found

    def remove(self, key: K, condition: Callable[[V], bool] | None = None) -> V | None:
        """Remove and return a key's value, only if it meets ``condition`` where given; None if nothing was removed."""
        with self._lock:
            if condition is None or ((found := self.values.get(key)) is not None and condition(found)):
                return self._pop(key)
        return None

    def remove_where(self, condition: Callable[[K, V], bool]) -> list[V]:
        """Remove and return every value that meets a condition."""
        with self._lock:
            keys = [key for key, value in self.values.copy().items() if condition(key, value)]
            return [value for key in keys if (value := self._pop(key)) is not None]

    def evict(self) -> list[V]:
        """Evict the values that exceed the bounds because they were in flight; return them."""
        with self._lock:
            return self._evict()

    def set_capacity(self, capacity: int) -> list[V]:
        """Hold at most ``capacity`` values from now on; return those evicted. Raises ValueError for less than 0."""
        capacity = checked_capacity(capacity)
        with self._lock:
            self._capacity = capacity
            return self._evict()

    def get_capacity(self) -> int:
        """Return the most values that are held."""
        return self._capacity

    def clear(self) -> None:
        """Remove everything."""
        self.remove_where(lambda key, value: True)

    def begin_in_child(self) -> None:
        """Go on in a forked child without the values in flight of threads that do not exist there."""
        if self._evictable is not None:
            evictable = self._evictable
            self.remove_where(lambda key, value: not evictable(value))
        self.weight = sum(map(self._weigh, self.values.values()))  # a thread may have been between two steps

    def __contains__(self, key: K) -> bool:
        return key in self.values

    def __len__(self) -> int:
        return len(self.values)

    def _add(self, key: K, value: V) -> list[V]:
        weight = self._weigh(value)
        if not self._capacity or (self._max_weight is not None and weight > self._max_weight):
            return []
        self._pop(key)  # an interrupting call may have put it there
        self.values[key] = value
        self.weight += weight
        return self._evict()

    def _pop(self, key: K) -> V | None:
        value = self.values.pop(key, None)
        if value is not None:
            self.weight -= self._weigh(value)
        return value

    def _fits(self) -> bool:
        return len(self.values) <= self._capacity and (self._max_weight is None or self.weight <= self._max_weight)

    def _evict(self) -> list[V]:
        if self._rank is not None:
            return self._evict_by_rank(self._rank)
        evicted: list[V] = []
        for _ in range(len(self.values)):
            if self._fits():
                break
            try:
                key, value = self.values.popitem(last=False)
            except KeyError:
                break  # an interrupting call has taken the last
            if self._evictable is not None and not self._evictable(value):
                self.values[key] = value
                continue
            self.weight -= self._weigh(value)
            evicted.append(value)
        return evicted

    def _evict_by_rank(self, rank: Callable[[V], float]) -> list[V]:
        if self._fits():
            return []
        evicted: list[V] = []
        evictable = self._evictable
        candidates = [item for item in self.values.copy().items() if evictable is None or evictable(item[1])]
        candidates.sort(key=lambda item: rank(item[1]))
        for key, _ in candidates:
            if self._fits():
                break
            value = self._pop(key)
            if value is not None:
                evicted.append(value)
        return evicted
