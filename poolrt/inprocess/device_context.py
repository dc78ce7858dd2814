"""Device contexts: compiled graphs, their executors and constants, found again from one iteration to the next.

After PaddlePaddle's device contexts: an executor keeps what it needs under the identity of an instance, which has the
shapes of its inputs and the executor itself. A context belongs to one process and is never part of a key that processes
share: kernels come from the primitive cache below.

Guarantees: an instance is made once and found from then on, until an input has another shape or it is evicted. Instances
of two executors never mix, because an executor is identified by an object and not by an address, which another may come
to have. Threads that share a context each have instances of their own. The instances of an executor or a thread go with it.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from poolrt.cachestore.lru import Lru

T = TypeVar("T")
#: Instances that a context keeps by default.
CAPACITY: Final = 4096


class InstanceKey(NamedTuple):
    """The identity of an instance.

    ``what`` it is: ``graph`` (compiled), ``plan`` (the executor of one), ``constant``. ``details`` distinguish instances of
    one kind and shapes: the phase, the layout of a constant. ``executor`` is the identity of the executor that runs it.
    ``thread`` is the number that the context gave to the thread if several share it, else 0, or its complement within
    tasks of a threadpool; it is 0 for instances that all threads share.
    """

    what: str
    details: tuple[Any, ...]
    shapes: tuple[tuple[int, ...], ...]
    executor: object
    thread: int = 0


@dataclass(frozen=True, slots=True)
class ContextStatistics:
    """Instances in a context, and how many it has found, created (added), evicted and forgotten so far."""

    instances: int
    found: int
    created: int
    evicted: int
    forgotten: int


class DeviceContext:
    """Instances of the executors of one process; it evicts the least recently used. Safe from many threads.

    ``shared`` says that several threads execute the same graphs through it at once.
    """

    def __init__(self, capacity: int = CAPACITY, *, shared: bool = False) -> None:
        """Keep at most ``capacity`` instances. Raises ValueError for less than one."""
        if capacity < 1:
            raise ValueError(f"capacity: expect at least 1, got {capacity}")
        self.capacity = capacity
        self.shared = shared
        #: For counters, and so that no finalizer waits for the lock of the instances.
        self._lock = threading.Lock()
        self._instances: Lru[InstanceKey, Any] = Lru(capacity)
        self._found = 0
        self._created = 0
        self._evicted = 0
        self._forgotten = 0
        #: Which keys are of executors and threads that are gone, until a thread has the lock.
        self._gone: deque[Callable[[InstanceKey, object], bool]] = deque()
        self._numbers = itertools.count(1)
        self._local = threading.local()

    def thread(self) -> int:
        """Return the number of the calling thread, which no other thread ever gets; 0 if threads do not share."""
        if not self.shared:
            return 0
        mark: _ThreadMark | None = getattr(self._local, "mark", None)
        if mark is None:
            mark = self._local.mark = _ThreadMark(next(self._numbers))
            weakref.finalize(mark, _forget_thread, weakref.ref(self), mark.number).atexit = False
        return mark.number

    def find(self, key: InstanceKey) -> Any | None:
        """Return the instance of a key, from now on the most recently used; None if there is none."""
        with self._lock:
            found = self._instances.get(key)
            self._found += found is not None
            return found

    def add(self, key: InstanceKey, instance: Any) -> None:
        """Keep an instance in the place of the key's former one; evict the least recently used beyond capacity."""
        with self._lock:
            self._drop_gone()
            evicted = self._instances.put(key, instance)
            self._created += 1
            self._evicted += len(evicted)
        del evicted  # only now: its finalizers may use the context

    def find_or_add(self, key: InstanceKey, make: Callable[[], T]) -> T:
        """Return the instance of a key; if there is none, the one that ``make`` returns, which may use this context."""
        found: T | None = self.find(key)
        if found is None:
            found = make()
            self.add(key, found)
        return found

    def forget(self, executor: object) -> None:
        """Drop the instances of an executor. The garbage collector may call it at any moment."""
        self._forget(lambda key, _: key.executor is executor)

    def instances(self) -> dict[InstanceKey, Any]:
        """Return the instances, the least recently used first."""
        with self._lock:
            self._drop_gone()
            return dict(self._instances.values)

    def statistics(self) -> ContextStatistics:
        """Return the number of instances, and the counters."""
        with self._lock:
            self._drop_gone()
            counts = (self._found, self._created, self._evicted, self._forgotten)
            return ContextStatistics(len(self._instances), *counts)

    def _forget(self, belongs: Callable[[InstanceKey, object], bool]) -> None:
        self._gone.append(belongs)
        # If the garbage collector interrupts a thread that holds the lock, that thread's next call drops the instances.
        if self._lock.acquire(blocking=False):
            try:
                self._drop_gone()
            finally:
                self._lock.release()

    def _drop_gone(self) -> None:
        while self._gone:
            self._forgotten += len(self._instances.remove_where(self._gone.popleft()))


class _ThreadMark:
    """Lives as long as a thread, and has its number."""

    __slots__ = ("__weakref__", "number")

    def __init__(self, number: int) -> None:
        self.number = number


def _forget_thread(context: weakref.ref[DeviceContext], thread: int) -> None:
    found = context()
    if found is not None:
        found._forget(lambda key, _: key.thread in (thread, ~thread))
