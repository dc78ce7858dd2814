"""Many threads that ask a primitive cache at once, for programs of a test's own or of an engine.

`python -m tests.workers.primitives.crowd KIND HOME` does so in a process of its own and prints their answers.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from poolrt.cachestore import CacheStore, CreationFailed, Key
from poolrt.cachestore.single_flight import SharedFuture
from poolrt.workers import Eltwise
from poolrt.workers.desc import MemoryDesc, OpDesc, PrimitiveAttr
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.implementations.program import Program
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.primitives.cache import Future, PrimitiveCache
from poolrt.workers.primitives.cached_primitive import CachedPrimitive
from poolrt.workers.primitives.creation import PrimitiveCreator
from poolrt.workers.primitives.policies import LruPrimitiveCache
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.workers import compiled

BOUND_S = 60.0
THREADS = 32
BROKEN = Program((KernelSpec.of("no_such_kernel"),), ())


class Described:
    """An implementation whose program is what a test says, described once for each creation."""

    general = True

    def __init__(self, name: str, describe: Callable[[int], Program], engine_kind: str = "cpu") -> None:
        self.name = name
        self.engine_kind = engine_kind
        self.times = 0
        self._describe = describe

    def reject(self, op: OpDesc, attr: PrimitiveAttr, target: Target) -> str | None:
        return None

    def complete(self, op: Any, attr: PrimitiveAttr, target: Target) -> Any:
        return op

    def program(self, op: OpDesc, attr: PrimitiveAttr, target: Target) -> Program:
        self.times += 1
        return self._describe(self.times)


class _Counted(SharedFuture[CachedPrimitive]):
    """A future that lets go of a semaphore when a thread begins to wait for it."""

    __slots__ = ("_asked", "_of")

    def __init__(self, of: Future, asked: threading.Semaphore) -> None:
        super().__init__()
        self._of = of
        self._asked = asked

    def done(self) -> bool:
        return self._of.done()

    def result(self, timeout: float) -> CachedPrimitive:
        self._asked.release()
        return self._of.result(timeout)


class _CountingCache(PrimitiveCache):
    """A cache in front of another that lets go of a semaphore for each future added, and each wait for one."""

    def __init__(self, cache: PrimitiveCache, asked: threading.Semaphore) -> None:
        self._cache = cache
        self._asked = asked

    def get(self, key: Key) -> Future | None:
        return self._cache.get(key)

    def add(self, key: Key, future: Future) -> None:
        self._cache.add(key, future)

    def get_or_add(self, key: Key, future: Future) -> Future | None:
        found = self._cache.get_or_add(key, future)
        if found is None or found is future:
            self._asked.release()
            return None
        return _Counted(found, self._asked)

    def remove_if_invalidated(self, key: Key) -> None:
        self._cache.remove_if_invalidated(key)

    def set_capacity(self, capacity: int) -> None:
        self._cache.set_capacity(capacity)

    def get_capacity(self) -> int:
        return self._cache.get_capacity()

    def get_size(self) -> int:
        return self._cache.get_size()


class Counting(PrimitiveProvider):
    """A provider that counts the threads which have put in a future, or seen that another's is under way and wait for it."""

    def __init__(
        self, store: CacheStore, creator: PrimitiveCreator | None = None, cache: PrimitiveCache | None = None
    ) -> None:
        self.asked = threading.Semaphore(0)
        counting = _CountingCache(cache or LruPrimitiveCache(16), self.asked)
        super().__init__(None, store, (creator or compiled.creator()).create, counting)

    def after(self, threads: int, program: Program) -> Program:
        """Return a program when so many threads have asked."""
        for _ in range(threads):
            assert self.asked.acquire(timeout=BOUND_S)
        return program


def all_at_once(cache: PrimitiveProvider, pd: PrimitiveDesc) -> tuple[list[str], list[Exception]]:
    """Let many threads ask for a primitive; return the sources that it named, and its errors."""
    sources: list[str] = []
    errors: list[Exception] = []

    def ask() -> None:
        try:
            sources.append(cache.fetch(pd, BOUND_S)[1])
        except Exception as error:  # noqa: BLE001 - compared by the test
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    return sources, errors


def main(kind: str, home: str) -> None:
    """Ask for a primitive that other processes ask for too, and for one of this process that fails at first."""
    engine, md = Engine(kind), MemoryDesc((64,), "f32")
    pd = Eltwise.PrimitiveDesc(engine, md, md, "relu").pd
    with CacheStore.connect(home=home) as store:
        sources, errors = all_at_once(compiled.cache(8, store), pd)
        if errors:
            raise errors[0]
    # Another store: there is no kernel in it that the next primitive could be derived from
    with CacheStore.connect(home=home, namespace=f"of-{os.getpid()}") as store:
        cache = Counting(store)
        flawed = Described(
            f"test:{os.getpid()}", lambda time: cache.after(THREADS, BROKEN) if time == 1 else pd.program(), kind
        )
        own = replace(pd, implementation=flawed)
        none, failures = all_at_once(cache, own)
        raised = [(e.type, e.message, e.log) for e in failures if isinstance(e, CreationFailed)]
        again = [cache.fetch(own)[1] for _ in range(2)]
    found = {"sources": sources, "none": none, "failures": len(raised), "different": len(set(raised)), "again": again}
    print(json.dumps({**found, "attempts": flawed.times}))


if __name__ == "__main__":
    main(*sys.argv[1:])
