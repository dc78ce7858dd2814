"""Device contexts: the place and stream that executors compute on, and what they keep from one iteration to the next.

After PaddlePaddle's device contexts: an executor keeps what it needs under the identity of an instance, which has the
shapes of its inputs and the executor itself. A context belongs to one process and is never part of a key that processes
share: kernels come from the primitive cache below.

Guarantees: an instance is made once and found from then on, until an input has another shape or it is evicted. Instances
of two executors never mix, because an executor is identified by an object and not by an address, which another may come
to have. Threads that share a context each have instances of their own. The instances of an executor or a thread go with it.
Instances are bounded in number and in bytes, memory that several of them keep alive counted once; only the instance added
last may exceed the bytes by itself. One that is evicted and still in use is found as long as it is.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from poolrt.cachestore.deferred_dataclass import dataclass
from poolrt.cachestore.deferred_namedtuple import NamedTuple
from poolrt.cachestore.forked_locks import freed_in_children, held_by_this_thread
from poolrt.cachestore.lru import checked_capacity
from poolrt.workers.desc import Arg
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.streams.stream import Stream

from .output_memory import OutputMemory

T = TypeVar("T")
#: Instances that a context keeps by default, and their bytes.
CAPACITY: Final = 4096
CAPACITY_BYTES: Final = 1 << 30
#: The share of a context's bytes, and the most of them, that are left for what the process needs beside its instances:
#: up to 6 MB were measured for 500 shapes of a small graph, of the allocator and of what primitives and descriptors leave.
_RESERVED_SHARE: Final = 8
_MOST_RESERVED: Final = 16 << 20
#: The share of a context's bytes that is kept for outputs.
_OUTPUT_SHARE: Final = 8


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


class ContextEntry(NamedTuple):
    """An instance in a list: its key without the identity of the executor, the graph's name, and the bytes it keeps alive."""

    what: str
    graph: str
    shapes: tuple[tuple[int, ...], ...]
    details: tuple[Any, ...]
    thread: int
    nbytes: int


class ExecutorIdentity:
    """Identifies an executor by being an object of its own; has the name of its graph."""

    __slots__ = ("__weakref__", "graph")

    def __init__(self, graph: str) -> None:
        self.graph = graph


@dataclass(frozen=True, slots=True)
class ContextStatistics:
    """Instances in a context, and how many it has found, created (added), evicted and forgotten so far."""

    instances: int
    found: int
    created: int
    evicted: int
    forgotten: int


class DeviceContext:
    """A place (engine), a stream on it, and the instances of executors: memories, primitives, plans. Safe from many threads.

    It evicts the least recently used instances beyond its bounds. ``shared`` says that several threads execute the same
    graphs through it at once.
    """

    def __init__(
        self,
        capacity: int = CAPACITY,
        *,
        capacity_bytes: int = CAPACITY_BYTES,
        stream: Stream | None = None,
        shared: bool = False,
    ) -> None:
        """Keep at most ``capacity`` instances, and let the process grow by at most ``capacity_bytes`` for them.

        An eighth of these bytes, at most 16 MiB, is left for what the process needs beside the instances themselves, and a
        32nd for the memory of outputs, which is used again when their callers have dropped them.
        Executors that are given this context and no engine compute on its ``stream``; without one it has a stream of its own
        on the CPU, made when it is first used. Raises ValueError for a bound that is no integer of at least 1, TypeError for
        a stream that is none.
        """
        if stream is not None and not isinstance(stream, Stream):
            raise TypeError(f"stream: expect a Stream, got {type(stream).__name__}")
        self.capacity = _check_bound("capacity", capacity)
        self.capacity_bytes = _check_bound("capacity_bytes", capacity_bytes)
        self.shared = shared
        #: Memory of outputs that their callers have dropped.
        self.output_memory = OutputMemory(self.capacity_bytes // _OUTPUT_SHARE)
        #: The stream that was given to it.
        self.given_stream = stream
        self._stream = stream
        #: For counters too, and so that no finalizer waits for the lock of the instances.
        self._lock = freed_in_children(threading.RLock())
        #: True in a finalizer or a signal's handler that runs in the middle of a change of the instances: it changes none.
        self._is_changing = held_by_this_thread(self._lock)
        #: The least recently used first.
        self._instances: OrderedDict[InstanceKey, Any] = OrderedDict()
        #: The instance that was used last and is still kept, if there is one.
        self.latest: Any = None
        self._parts: dict[InstanceKey, Sequence[tuple[object, int]]] = {}
        #: By identity of what instances keep alive: how many of them do, and its bytes.
        self._owners: dict[int, list[int]] = {}
        self._bytes = 0
        #: Evicted instances that are still in use: another one of them would be memory twice.
        self._in_use: weakref.WeakValueDictionary[InstanceKey, Any] = weakref.WeakValueDictionary()
        self._found = 0
        #: Counts without the lock what is found again as `latest`; each look at it is a count, too.
        self.count_again: Final = itertools.count().__next__
        self._looks = 0
        self._created = 0
        self._evicted = 0
        self._forgotten = 0
        #: Which keys are of executors and threads that are gone, until a thread has the lock.
        self._gone: deque[Callable[[InstanceKey, object], bool]] = deque()
        self._numbers = itertools.count(1)
        self._local = threading.local()

    @property
    def stream(self) -> Stream:
        """The stream that `execute` computes on."""
        found = self._stream
        if found is None:
            made = Stream(Engine("cpu"))
            with self._lock:
                found = self._stream
                if found is None:
                    found = self._stream = made
        return found

    @property
    def engine(self) -> Engine:
        """The place: the engine of the stream."""
        return self.stream.engine

    @property
    def nbytes(self) -> int:
        """The bytes that the instances keep alive; what several of them share counts once."""
        self._drop_gone()
        with self._lock:
            return self._bytes

    def submit(self, primitive: Primitive, args: Mapping[int, Memory] | Mapping[Arg, Memory]) -> None:
        """Note an execution of a primitive on memories, for the calling thread's next `execute`.

        Raises TypeError for another object, ValueError for a primitive on another engine.
        """
        if not isinstance(primitive, Primitive):
            raise TypeError(f"primitive: expect a Primitive, got {type(primitive).__name__}")
        if primitive.engine is not self.engine:
            raise ValueError(f"primitive: expect one on the context's {self.engine}, got one on {primitive.engine}")
        self._submitted().append((primitive, dict(args)))

    def execute(self) -> None:
        """Execute what the calling thread submitted, in that order, on the stream, and return as `Primitive.execute` does.

        Wait for results with ``context.stream.wait()``. Raises what the first execution raises that fails; those behind it
        are dropped.
        """
        submitted = self._submitted()
        self._local.submitted = []
        for primitive, args in submitted:
            primitive.execute(self.stream, args)

    def _submitted(self) -> list[tuple[Primitive, dict[Any, Memory]]]:
        found: list[tuple[Primitive, dict[Any, Memory]]] | None = getattr(self._local, "submitted", None)
        if found is None:
            found = self._local.submitted = []
        return found

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
        if self._is_changing():
            return self._instances.get(key)
        with self._lock:
            found = self._instances.get(key)
            if found is not None:
                self._instances.move_to_end(key)
                self.latest = found
                self._found += 1
                return found
            found = self._in_use.get(key)
            if found is None:
                return None
            # No eviction before the next addition: this costs no memory, and what is needed together is found one by one.
            self._found += 1
            self._hold(key, found)
            return found

    def find_again(self, instance: object) -> bool:
        """Return whether an instance is the one that was used last and is still kept; it then counts as found."""
        if self.latest is not instance:
            return False
        self.count_again()
        return True

    def add(self, key: InstanceKey, instance: Any) -> None:
        """Keep an instance in the place of the key's former one; evict the least recently used beyond the bounds."""
        if self._is_changing():
            return
        self._drop_gone()
        with self._lock:
            self._created += 1
            evicted = [self._drop(key)] if key in self._instances else []
            self._hold(key, instance)
            evicted += self._evict()
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

    def set_capacity(self, capacity: int | None = None, capacity_bytes: int | None = None) -> None:
        """Have other bounds from now on; None leaves one as it is. Raises as the constructor."""
        most = self.capacity if capacity is None else _check_bound("capacity", capacity)
        most_bytes = self.capacity_bytes if capacity_bytes is None else _check_bound("capacity_bytes", capacity_bytes)
        self._drop_gone()
        is_inside = self._is_changing()
        with self._lock:
            self.capacity, self.capacity_bytes = most, most_bytes
            evicted = [] if is_inside else self._evict()
            self.output_memory.set_capacity(most_bytes // _OUTPUT_SHARE)
        del evicted

    def instances(self) -> dict[InstanceKey, Any]:
        """Return the instances, the least recently used first."""
        self._drop_gone()
        with self._lock:
            return dict(self._instances)

    def contents(self) -> list[ContextEntry]:
        """Return what the context holds, the least recently used first."""
        self._drop_gone()
        with self._lock:
            return [
                ContextEntry(
                    key.what, getattr(key.executor, "graph", ""), key.shapes, key.details, key.thread,
                    sum(nbytes for _, nbytes in self._parts.get(key, ())),
                )
                for key in self._instances
            ]  # fmt: skip

    def statistics(self) -> ContextStatistics:
        """Return the number of instances, and the counters."""
        self._drop_gone()
        with self._lock:
            found = self._found + self.count_again() - self._looks
            self._looks += 1
            counts = (found, self._created, self._evicted, self._forgotten)
            return ContextStatistics(len(self._instances), *counts)

    def _hold(self, key: InstanceKey, instance: Any) -> None:
        self._instances[key] = self.latest = instance
        self._parts[key] = parts = _parts_of(instance)
        for owner, nbytes in parts:
            known = self._owners.setdefault(id(owner), [0, nbytes])
            known[0] += 1
            self._bytes += nbytes if known[0] == 1 else 0

    def _evict(self) -> list[Any]:
        """Drop the least recently used instances beyond the bounds, but not the last; return them."""
        evicted: list[Any] = []
        left = min(self.capacity_bytes // _RESERVED_SHARE, _MOST_RESERVED) + self.capacity_bytes // _OUTPUT_SHARE
        room = self.capacity_bytes - left
        while len(self._instances) > max(1, self.capacity if self._bytes <= room else 1):
            oldest = next(iter(self._instances))
            evicted.append(self._drop(oldest))
            self._evicted += 1
            if type(evicted[-1]).__weakrefoffset__:
                self._in_use[oldest] = evicted[-1]
        return evicted

    def _drop(self, key: InstanceKey) -> Any:
        for owner, _ in self._parts.pop(key):
            known = self._owners[id(owner)]
            known[0] -= 1
            if not known[0]:
                self._bytes -= known[1]
                del self._owners[id(owner)]
        dropped = self._instances.pop(key)
        if dropped is self.latest:
            self.latest = None
        return dropped

    def _forget(self, belongs: Callable[[InstanceKey, object], bool]) -> None:
        self._gone.append(belongs)
        # If the garbage collector interrupts a thread that holds the lock, that thread's next call drops the instances.
        if not self._is_changing() and self._lock.acquire(blocking=False):
            try:
                self._drop_forgotten()
            finally:
                self._lock.release()

    def _drop_gone(self) -> None:
        if self._gone and not self._is_changing():
            with self._lock:
                self._drop_forgotten()

    def _drop_forgotten(self) -> None:
        while self._gone:
            belongs = self._gone.popleft()
            for key in [key for key, value in self._instances.items() if belongs(key, value)]:
                self._drop(key)
                self._forgotten += 1
            for key in [key for key in self._in_use if belongs(key, None)]:
                self._in_use.pop(key, None)


def _check_bound(name: str, value: int) -> int:
    try:
        found = checked_capacity(value, name)
    except ValueError:
        found = 0
    if not found:
        raise ValueError(f"{name}: expect at least 1, got {value!r}")
    return found


def _parts_of(instance: Any) -> Sequence[tuple[object, int]]:
    """Return what an instance keeps alive, with its bytes."""
    if isinstance(instance, Memory):
        return [(instance, instance.desc.nbytes)]
    if isinstance(instance, Primitive):
        return instance.resource.parts()
    parts = getattr(instance, "parts", None)
    return [] if parts is None else parts()


class _ThreadMark:
    """Lives as long as a thread, and has its number."""

    __slots__ = ("__weakref__", "number")

    def __init__(self, number: int) -> None:
        self.number = number


def _forget_thread(context: weakref.ref[DeviceContext], thread: int) -> None:
    found = context()
    if found is not None:
        found._forget(lambda key, _: key.thread in (thread, ~thread))
