"""The background thread: work that would block the loop, which is lowering graphs, look-ups and statistics."""

from __future__ import annotations

import gc
import math
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from poolrt.cachestore.digests import LONG, openssl_sha256, sha256
from poolrt.cachestore.errors import StoreError
from poolrt.cachestore.lru import Lru
from poolrt.errors import GraphRefused, PoolError
from poolrt.workers.desc.codec import pack
from poolrt.workers.ipc.bounded_decoding import Payload
from poolrt.workers.verbose.output import LEVELS

from .fair_queue import FairQueue
from .instructions import (
    RING_ENDS,
    CollectStatistics,
    FindConstants,
    FindRingEnds,
    Forget,
    LookedUp,
    LookUp,
    Lower,
    LoweredGraph,
    NoteCreated,
    PrimitiveToLoad,
    TrimMemory,
)
from .kept_entries import KeptEntries
from .kept_lowerings import KeptLowerings
from .lowering import Lowered, LoweringRequest, lower_here
from .lowering_process import lower_in_process
from .open_constants import OpenConstants
from .peers import Owner
from .placement import creation_cost

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore, Key
    from poolrt.workers.primitives.derivation import KernelTable

T = TypeVar("T")

#: The name of an outcome without arguments, which is for the processes: the compiler will be needed.
PRELOAD: Final = "preload"
#: The outcome of a task: the name of the state machine's handler, and its arguments; or `PRELOAD`.
Outcome: TypeAlias = tuple[str, tuple[Any, ...]]
ShortTask: TypeAlias = LookUp | FindConstants | FindRingEnds | NoteCreated | Forget | CollectStatistics | TrimMemory
Task: TypeAlias = Lower | ShortTask
#: Seconds that the current task may take to end after `stop`: a coordinator exits within a second.
_STOP_S: Final = 0.7
#: After a graph was refused, its process waits this many times as long as that took until another of its graphs is lowered,
#: and at most `_DELAY_S` seconds: a client that repeats a mistake costs the others half a percent of a processor.
_DELAY_FACTOR: Final = 200
_DELAY_S: Final = 10.0
#: Lowered graphs that are kept for the next load of the same graph, and bytes of their plans and, roughly, primitives.
_KEPT_GRAPHS: Final = 64
_KEPT_BYTES: Final = 16 * 1024 * 1024
#: Kernels that are kept, from which primitives are derived.
_KERNELS: Final = 1024
#: Seconds without a task after which a new thread prepares for lowering. A pool starts beside its client, on the same processors.
_PREPARE_AFTER_S: Final = 0.5
#: Seconds without a task after which the thread keeps what it has made, and things to keep at which it does not wait.
_KEEP_AFTER_S: Final = 0.1
_KEPT_LATER: Final = 16
#: Bytes of a graph from which on it is lowered in a process of its own: that takes a while, and much memory.
_LARGE_BYTES: Final = 256 * 1024


class BackgroundThread:
    """Runs tasks and keeps their outcomes for `take`; ``store_options`` are `CacheStore.connect`'s.

    Graphs are lowered for workers of ``threads`` threads, and for the instructions of ``max_isa``. `fileno` is
    readable while there are outcomes. At a ``verbose`` level that prints executions, plans contain their texts.

    ``is_beside_others`` returns whether clients of other owners are active: the thread asks it. Graphs that call kernels of
    users are refused unless ``functions``.

    Short tasks come first. Clients take turns at lowering, and a graph that was lowered a while ago is not lowered again.
    """

    def __init__(
        self,
        store_options: Mapping[str, Any],
        max_isa: str,
        threads: int,
        verbose: str = "0",
        is_beside_others: Callable[[Owner], bool] = lambda owner: False,
        functions: bool = True,
        constant_files: Mapping[str, Any] | None = None,
    ) -> None:
        self._constants = OpenConstants(constant_files or {})
        self._store_options = dict(store_options)
        self._max_isa = max_isa
        self._threads = threads
        self._with_texts = LEVELS[verbose].executes
        self._is_beside_others = is_beside_others
        self._functions = functions
        self._changed = threading.Condition()
        self._short_tasks: deque[ShortTask] = deque()
        self._graphs = FairQueue[Owner, Lower]()
        self._lowered = Lru[bytes, Lowered](_KEPT_GRAPHS, _KEPT_BYTES, weigh=Lowered.nbytes)
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._store: CacheStore | None = None
        self._kept: KeptLowerings | None = None
        self._kernels: KernelTable | None = None
        #: Entries whose kernels are not in the table yet.
        self._unread: list[bytes] = []
        #: The graphs of the loads that are not looked up yet.
        self._loads: dict[int, Lowered] = {}
        #: What keeps graphs and entries in files, once no load waits for this thread.
        self._to_keep: deque[Callable[[], None]] = deque()
        #: When `close` stops waiting for the thread; 0 before `stop`.
        self._until = 0.0
        self._thread = threading.Thread(target=self._work, name="poolrt-background", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Return the descriptor to watch for outcomes."""
        return self._event

    def submit(self, task: Task, owner: Owner = (0, 0)) -> None:
        """Queue a task; all clients of an ``owner`` have one turn."""
        with self._changed:
            if isinstance(task, Lower):
                self._graphs.put(owner, task)
            else:
                self._short_tasks.append(task)
            self._changed.notify()

    def take(self) -> list[Outcome]:
        """Return the outcomes so far."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return []
        found = []
        while not self._outcomes.empty():
            found.append(self._outcomes.get())
        return found

    def wake(self) -> None:
        """Make the descriptor readable, with or without an outcome."""
        os.eventfd_write(self._event, 1)

    def stop(self) -> None:
        """Stop the thread after the current task, without waiting."""
        if not self._until:
            with self._changed:
                self._until = time.monotonic() + _STOP_S
                self._changed.notify()

    def close(self) -> None:
        """Stop the thread and wait for it, at most until `_STOP_S` seconds after the first `stop`."""
        self.stop()
        self._thread.join(max(0.0, self._until - time.monotonic()))
        if not self._thread.is_alive():
            os.close(self._event)

    def _work(self) -> None:
        try:
            self._prepare()
        except Exception as error:  # noqa: BLE001 - this thread must go on; the first load raises the same error
            print(f"poolrt: cannot prepare for lowering: {type(error).__name__}: {error}", file=sys.stderr)
        while (found := self._next()) is not None:
            self._do(*found)
            del found  # it refers to a graph
        while self._to_keep:
            self._keep_next()
        if self._store is not None:
            self._store.close()

    def _prepare(self) -> None:
        """Import what finding a lowered graph needs; if there is nothing to do for a while, what lowering needs.

        The first load imports what it needs itself, which is less. A node without a lowered graph has none to find.
        """
        from poolrt.cachestore.results import are_kept

        self._kept = KeptLowerings(self._opened)
        if are_kept(self._opened().options):
            with self._changed:
                self._changed.wait_for(self._is_wanted, _PREPARE_AFTER_S)
        if not self._is_wanted():
            from poolrt.graph.lower import prepare

            for _ in prepare("cpu"):
                if self._is_wanted():
                    break

    def _is_wanted(self) -> bool:
        return bool(self._short_tasks or self._graphs or self._until)

    def _do(self, owner: Owner, task: Task) -> None:
        if isinstance(task, Forget):
            self._loads.pop(task.load, None)
        elif isinstance(task, NoteCreated):
            self._note_kernels([task.entry])
        elif isinstance(task, TrimMemory):
            _trim_memory()
        elif isinstance(task, CollectStatistics):
            self._collect_statistics(task)
        elif isinstance(task, LookUp):
            self._put("on_looked_up", task.load, self._attempt(partial(self._look_up, task)))
        elif isinstance(task, FindConstants):
            self._keep("on_constants_found", task.load, self._constants.find(task.constants))
        elif isinstance(task, FindRingEnds):
            found = self._attempt(self._find_ring_ends)
            if isinstance(found, PoolError):  # clients and workers go on in Python
                self._put("on_load_failed", RING_ENDS, found)
            else:
                self._keep("on_ring_ends", *found)
        else:
            begin = time.monotonic()
            lowered = self._attempt(partial(self._lower, task))
            if isinstance(lowered, GraphRefused) and self._is_beside_others(owner):
                pause = min(_DELAY_S, _DELAY_FACTOR * (time.monotonic() - begin))
                self._graphs.delay(owner, time.monotonic() + pause)
            self._put("on_lowered", task.load, lowered)

    def _next(self) -> tuple[Owner, Task] | None:
        """Wait for a task; return it and its owner, None after `stop`."""
        while True:
            found = self._wait_for_task(_KEEP_AFTER_S if self._to_keep else math.inf)
            if found is not None or self._until:
                return found
            self._keep_next()

    def _wait_for_task(self, limit: float) -> tuple[Owner, Task] | None:
        """Wait for a task; return it and its owner, None after `stop`, and after ``limit`` seconds without one."""
        end = time.monotonic() + limit
        with self._changed:
            while not self._until:
                if self._short_tasks:
                    return (0, 0), self._short_tasks.popleft()
                now = time.monotonic()
                found = self._graphs.take(now)
                if found is not None or now >= end:
                    return found
                until = min(end, self._graphs.next_time() or math.inf)
                self._changed.wait(None if until == math.inf else until - now)
        return None

    def _keep_next(self) -> None:
        self._attempt(self._to_keep.popleft())

    def _put(self, handler: str, load: int, found: object) -> None:
        """Keep the outcome of a load's task; ``handler`` takes it unless it is an error."""
        self._keep("on_load_failed" if isinstance(found, PoolError) else handler, load, found)

    def _keep(self, handler: str, *arguments: object) -> None:
        self._outcomes.put((handler, arguments))
        os.eventfd_write(self._event, 1)

    def _attempt(self, action: Callable[[], T]) -> T | PoolError:
        """Return the result of an action, or its error for the client that it belongs to."""
        try:
            return action()
        except PoolError as error:
            failed = error
        except (StoreError, OSError) as error:
            failed = PoolError(f"the cache cannot be used: {error}")
        except Exception as error:  # noqa: BLE001 - the error belongs to one client, which gets it
            import traceback  # it imports what reads sources, 3 ms

            traceback.print_exc()  # the client gets the error without its stack
            failed = PoolError(f"internal error: {type(error).__name__}: {error}")
        # Its frames refer to the graph, and one of them to the error: only a collection of garbage would free them.
        failed.__traceback__ = failed.__cause__ = failed.__context__ = None
        return failed

    def _collect_statistics(self, task: CollectStatistics) -> None:
        """Answer all requests for statistics that have come so far with one look at the store and the system."""
        with self._changed:
            tasks = [task, *(each for each in self._short_tasks if isinstance(each, CollectStatistics))]
            self._short_tasks = deque(each for each in self._short_tasks if not isinstance(each, CollectStatistics))
        found = self._attempt(lambda: dict(self._opened().stats()))
        cache = {"error": str(found)} if isinstance(found, PoolError) else found
        resident: dict[int, int] = {}
        for each in tasks:
            for worker in each.facts["workers"]:
                pid = worker["pid"]
                worker["rss_bytes"] = resident[pid] = resident[pid] if pid in resident else _resident_bytes(pid)
            self._keep("on_statistics", each.peer, each.request, {"pid": os.getpid(), **each.facts, "cache": cache})

    def _opened(self) -> CacheStore:
        if self._store is None:
            from poolrt.cachestore import CacheStore

            self._store = CacheStore.connect(**self._store_options)
        return self._store

    def _lower(self, task: Lower) -> LoweredGraph:
        data = task.graph.take()
        if data is None:
            raise GraphRefused(f"graph {task.name!r}: the load has ended")
        # The first graph would wait for OpenSSL.
        digest = (openssl_sha256 if len(data) > LONG else sha256)(pack(task.targets))
        for piece in data.pieces if isinstance(data, Payload) else [data]:
            digest.update(piece)
        lowered = self._lowered.get(digest.digest())
        if lowered is None:
            options = self._max_isa, self._threads, self._with_texts, self._functions
            lowered = self._find_or_lower(LoweringRequest(task.name, task.targets, *options), data, digest.digest())
            self._lowered.put(digest.digest(), lowered)
        self._loads[task.load] = lowered
        self._opened().note_asked(task.name, lowered.keys)
        return lowered.graph

    def _find_or_lower(self, request: LoweringRequest, data: bytes | Payload, digest: bytes) -> Lowered:
        """Return a graph as the node has it; lower it if it does not, and keep it."""
        if self._kept is None:
            self._kept = KeptLowerings(self._opened)
        key = self._kept.key(request, digest)
        found = self._kept.find(key) if key is not None else None
        if found is None:
            found = self._lower_anew(request, data)
            if key is not None:
                self._keep_later(partial(self._kept.keep, key, found))
        return found

    def _lower_anew(self, request: LoweringRequest, data: bytes | Payload) -> Lowered:
        if len(data) < _LARGE_BYTES:
            return lower_here(request, data)
        try:
            return lower_in_process(request, data, lambda: bool(self._until))
        except OSError:
            return lower_here(request, data)  # no process can be started

    def _look_up(self, task: LookUp) -> LookedUp:
        lowered = self._loads.get(task.load)
        if lowered is None:
            return LookedUp()
        store = self._opened()
        keys = [lowered.keys[i] for i in task.primitives]
        wanted = dict(zip(keys, (lowered.graph.primitives[i] for i in task.primitives), strict=True))
        kept = KeptEntries(store, keys)
        asks = store.options.url is None

        def assemble(key: Key) -> bytes | None:
            nonlocal asks
            entry = _assemble(store, wanted[key], kept)
            if asks and entry is None and wanted[key].compiles:
                asks = False
                if not store.payloads_here((), 1):
                    # The node has no entry, nor has its own server: the compiler is imported while that starts.
                    self._keep(PRELOAD)
            return entry

        hits = store.get_many(keys, creates=True, assemble=assemble)
        if kept.has_more:
            self._keep_later(kept.keep)
        if None in hits:
            store.keeps_nothing()  # prints the warning once; the creators, which find the same, do not
        found = {
            i: (hit.value, str(hit.source)) for i, hit in zip(task.primitives, hits, strict=True) if hit is not None
        }
        self._note_kernels([entry for entry, _ in found.values()])
        for i in task.primitives:
            if i not in found and (derived := self._derive(lowered.graph.primitives[i].descriptor)) is not None:
                found[i] = derived, "derived"
        missing = [i for i in task.primitives if i not in found]
        return LookedUp(found, {i: _kernels_of(lowered.graph.primitives[i].descriptor) for i in missing})

    def _keep_later(self, action: Callable[[], None]) -> None:
        """Have an action keep something in files when no task waits, at once if many are to be kept."""
        self._to_keep.append(action)
        if len(self._to_keep) > _KEPT_LATER:
            self._keep_next()

    def _find_ring_ends(self) -> tuple[PrimitiveToLoad, bytes, frozenset[bytes]]:
        """Return the primitive of the compiled ends of rings, its entry or nothing, and the identities of its kernels."""
        from poolrt.workers.desc import PrimitiveAttr
        from poolrt.workers.desc.operations.ring_ends import RingEnds
        from poolrt.workers.engines.target import cpu_target
        from poolrt.workers.implementations.primitive_desc import primitive_desc
        from poolrt.workers.primitives.key import primitive_key

        pd = primitive_desc(RingEnds(), PrimitiveAttr(), cpu_target(self._max_isa))
        key, store = primitive_key(pd), self._opened()
        label, wire = f"{pd.op.kind} ({pd.impl_name()})", pd.to_wire()
        primitive = PrimitiveToLoad(key.digest, label, wire, creation_cost(pd.op.kind))
        (hit,) = store.get_many([key], creates=True, assemble=lambda _: _assemble(store, primitive))
        entry = hit.value if hit is not None else self._derive(wire) or b""
        return primitive, entry, frozenset() if entry else _kernels_of(wire)

    def _note_kernels(self, entries: list[bytes]) -> None:
        """Keep verified entries until a primitive may be derived from their kernels; all of most models are there."""
        self._unread += entries
        if sum(map(len, self._unread)) > _KEPT_BYTES:
            self._attempt(self._kernel_table)

    def _derive(self, descriptor: list[Any]) -> bytes | None:
        """Return the entry of a primitive whose kernels are all known, else None."""
        from poolrt.workers.implementations.primitive_desc import PrimitiveDesc

        try:
            return self._kernel_table().derive(PrimitiveDesc.from_wire(descriptor), self._opened())
        except Exception:  # noqa: BLE001 - the creator gets the same error, and its log is the client's
            return None

    def _kernel_table(self) -> KernelTable:
        """Return the table of kernels, with those of all entries so far."""
        from poolrt.workers.primitives.entry import MalformedEntry, parse_entry

        if self._kernels is None:
            from poolrt.workers.primitives.derivation import KernelTable

            self._kernels = KernelTable(_KERNELS)
        unread, self._unread = self._unread, []
        for entry in unread:
            with suppress(MalformedEntry):  # the worker that gets it names it
                self._kernels.share(parse_entry(entry))
        return self._kernels


def _kernels_of(descriptor: list[Any]) -> frozenset[bytes]:
    """Return the identities of a primitive's kernels; none if it cannot be described: the creator gets the same error."""
    from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
    from poolrt.workers.primitives.derivation import identities_of

    try:
        pd = PrimitiveDesc.from_wire(descriptor)
        return frozenset(identities_of(pd, pd.program()))
    except Exception:  # noqa: BLE001 - as above
        return frozenset()


def _assemble(store: CacheStore, primitive: PrimitiveToLoad, kept: KeptEntries | None = None) -> bytes | None:
    """Return the entry of a primitive if its kernels are prebuilt; ``kept`` has, or gets, those that were put together."""
    if not primitive.compiles or not store.prebuilt.is_there():
        return None
    entry = kept.find(primitive.digest) if kept is not None else None
    if entry is None:
        from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
        from poolrt.workers.primitives.prebuilt import prebuilt_entry

        entry = prebuilt_entry(store, PrimitiveDesc.from_wire(primitive.descriptor))
        if entry is not None and kept is not None:
            kept.add(primitive.digest, entry)
    return entry


def _trim_memory() -> None:
    """Return freed memory to the system: the C library keeps blocks between others until it is asked."""
    import ctypes

    gc.collect()  # what is left of a graph lies in many pages
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def _resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 for one that does not run."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0  # it has just exited, or was not forked yet
