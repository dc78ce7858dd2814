"""The background thread: work that would block the loop, which is lowering graphs, look-ups and statistics."""

from __future__ import annotations

import gc
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from poolrt.cachestore.errors import StoreError
from poolrt.errors import GraphRefused, PoolError
from poolrt.workers.desc.codec import decode, pack
from poolrt.workers.verbose.output import LEVELS

from .instructions import CollectStatistics, Forget, LookUp, Lower, LoweredGraph, PrimitiveToLoad, TrimMemory
from .placement import creation_cost

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore, Key
    from poolrt.workers.engines.target import Target

#: The outcome of a task: the name of the state machine's handler, and its arguments.
Outcome: TypeAlias = tuple[str, tuple[Any, ...]]
Task: TypeAlias = Lower | LookUp | Forget | CollectStatistics | TrimMemory
#: Seconds that the current task may take to end after `stop`: a coordinator exits within a second.
_STOP_S: Final = 0.7
#: Characters of an error about a graph: it may quote a text of the graph.
_TEXT: Final = 2000


class BackgroundThread:
    """Runs tasks in order and keeps their outcomes for `take`; ``store_options`` are `CacheStore.connect`'s.

    Graphs are lowered for workers of ``threads`` threads, and for no later ISA level than ``max_isa``. `fileno` is
    readable while there are outcomes. At a ``verbose`` level that prints executions, plans contain their texts.
    """

    def __init__(self, store_options: Mapping[str, Any], max_isa: str | None, threads: int, verbose: str = "0") -> None:
        self._store_options = dict(store_options)
        self._max_isa = max_isa
        self._threads = threads
        self._with_texts = LEVELS[verbose].executes
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._store: CacheStore | None = None
        self._keys: dict[int, tuple[Key, ...]] = {}
        #: When `close` stops waiting for the thread; 0 before `stop`.
        self._until = 0.0
        self._thread = threading.Thread(target=self._work, name="poolrt-background", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Return the descriptor to watch for outcomes."""
        return self._event

    def submit(self, task: Task) -> None:
        """Queue a task."""
        self._tasks.put(task)

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
            self._until = time.monotonic() + _STOP_S
            self._tasks.put(None)

    def close(self) -> None:
        """Stop the thread and wait for it, at most until `_STOP_S` seconds after the first `stop`."""
        self.stop()
        self._thread.join(max(0.0, self._until - time.monotonic()))
        if not self._thread.is_alive():
            os.close(self._event)

    def _work(self) -> None:
        try:
            from poolrt.graph.lower import prepare

            prepare("cpu")  # while there is no task yet
        except Exception as error:  # noqa: BLE001 - this thread must go on; the first load raises the same error
            print(f"poolrt: cannot prepare for lowering: {type(error).__name__}: {error}", file=sys.stderr)
        while (task := self._tasks.get()) is not None and not self._until:
            if isinstance(task, Forget):
                self._keys.pop(task.load, None)
                continue
            if isinstance(task, TrimMemory):
                _trim_memory()
                continue
            self._outcomes.put(self._outcome(task))
            os.eventfd_write(self._event, 1)
        if self._store is not None:
            self._store.close()

    def _outcome(self, task: Lower | LookUp | CollectStatistics) -> Outcome:
        try:
            if isinstance(task, Lower):
                return "on_lowered", (task.load, self._lower(task))
            if isinstance(task, LookUp):
                return "on_looked_up", (task.load, self._look_up(task))
            facts = {"pid": os.getpid(), **_resident(task.facts)}
            return "on_statistics", (task.peer, task.request, {**facts, "cache": dict(self._opened().stats())})
        except PoolError as error:
            failed = error
        except (StoreError, OSError) as error:
            failed = PoolError(f"the cache cannot be used: {error}")
        except Exception as error:  # noqa: BLE001 - the error belongs to one load, whose client gets it
            traceback.print_exc()  # the client gets the error without its stack
            failed = PoolError(f"internal error: {type(error).__name__}: {error}")
        if isinstance(task, CollectStatistics):
            return "on_statistics", (
                task.peer,
                task.request,
                {**_resident(task.facts), "cache": {"error": str(failed)}},
            )
        # Its frames refer to the graph, and one of them to the error: only a collection of garbage would free them.
        failed.__traceback__ = failed.__cause__ = failed.__context__ = None
        return "on_load_failed", (task.load, failed)

    def _opened(self) -> CacheStore:
        if self._store is None:
            from poolrt.cachestore import CacheStore

            self._store = CacheStore.connect(**self._store_options)
        return self._store

    def _lower(self, task: Lower) -> LoweredGraph:
        from poolrt.workers.engines.target import Target, cpu_target

        targets = {"cpu": cpu_target(self._max_isa)}
        targets |= {engine: decode(Target, target) for engine, target in task.targets.items()}
        gc.disable()  # a collection during this would visit all of the graph's objects, and the loop would wait
        try:
            return self._lower_graph(task, targets)
        finally:
            gc.enable()

    def _lower_graph(self, task: Lower, targets: Mapping[str, Target]) -> LoweredGraph:
        from poolrt.graph.errors import GraphError
        from poolrt.graph.lower import lower
        from poolrt.graph.packed import unpack_graph
        from poolrt.graph.wire_parser import parse

        data = task.graph.take()
        if data is None:
            raise GraphRefused(f"graph {task.name!r}: the load has ended")
        wire: dict[str, Any] = {}
        try:
            wire = unpack_graph(data)
            lowered = lower(parse(wire), targets, self._threads)
        except GraphError as error:
            raise GraphRefused(f"graph {task.name!r}: {str(error)[:_TEXT]}") from error
        finally:
            # Item by item, because the loop waits while a whole list is freed.
            for items in wire.values():
                while isinstance(items, list) and items:
                    items.pop()
        self._keys[task.load] = lowered.keys
        plan = lowered.plan
        if self._with_texts:
            from poolrt.workers.verbose.text import describe_primitive

            indices = [int(name.partition(":")[2] or 0) for name in plan.engines]
            texts = (
                describe_primitive(pd, indices[n]) for pd, n in zip(lowered.primitives, plan.primitives, strict=True)
            )
            plan = replace(plan, texts=tuple(texts))
        packed = pack(plan)
        primitives = tuple(
            PrimitiveToLoad(key.digest, f"{pd.op.kind} ({pd.impl_name()})", pd.to_wire(), creation_cost(pd.op.kind))
            for pd, key in zip(lowered.primitives, lowered.keys, strict=True)
        )
        inputs, outputs = (
            [[p.name, list(p.dims), p.dtype, p.nbytes] for p in ports] for ports in (plan.inputs, plan.outputs)
        )
        return LoweredGraph(packed, len(plan.steps), primitives, plan.constants, inputs, outputs)

    def _look_up(self, task: LookUp) -> dict[int, tuple[bytes, str]]:
        keys = self._keys.get(task.load, ())
        found = self._opened().get_many([keys[i] for i in task.primitives])
        if None in found:
            self._opened().keeps_nothing()  # prints the warning once; the creators, which find the same, do not
        return {i: (hit.value, hit.source) for i, hit in zip(task.primitives, found, strict=True) if hit is not None}


def _trim_memory() -> None:
    """Return freed memory to the system: the C library keeps what lies between other blocks until it is asked."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def _resident(facts: dict[str, Any]) -> dict[str, Any]:
    """Add each worker's resident memory, in bytes; 0 for one that does not run."""
    for worker in facts["workers"]:
        worker["rss_bytes"] = 0
        try:
            with open(f"/proc/{worker['pid']}/statm", encoding="ascii") as file:
                worker["rss_bytes"] = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
        except OSError:
            pass  # it has just exited, or was not forked yet
    return facts
