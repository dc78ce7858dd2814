"""The primitive cache of a process: shared futures, capacity, and one creation whatever threads and errors do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrt.cachestore import CacheStore, CreationFailed, CreationTimeout, Key
from poolrt.workers import Eltwise
from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.implementations.program import Launch, Program
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.primitives.cache import Future
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.primitives.policies import CostPrimitiveCache, LruPrimitiveCache
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.interrupting import is_interrupted
from tests.workers import compiled
from tests.workers.own_process import ANSWER_S, python

from .crowd import BOUND_S, BROKEN, THREADS, Counting, Described, all_at_once
from .fifo import Careless, Fifo, Policy, completed

ROOT = Path(__file__).resolve().parents[3]

#: Moves 100 bytes.
SOUND = Program(
    (KernelSpec.of("concat", kind="bits32"),),
    (Launch(0, (("m", (int(Arg.SRC), 0)), ("m", (int(Arg.DST), 0)), ("t", 0)), 0),),
    bytes(64),
)
NUMBERS = iter(range(1 << 30))


def described(describe: Callable[[int], Program], shares: bool = False) -> tuple[PrimitiveDesc, Described]:
    """Return a primitive descriptor of which no primitive exists yet, and its implementation.

    It ``shares`` the kernels of others, or has its own: then no other primitive is derived from it.
    """
    number, target = next(NUMBERS), cpu_target()
    implementation = Described(f"test:{number}", describe)
    md = MemoryDesc((25,), "f32")
    if not shares:
        target = replace(target, device=(*target.device, ("test", str(number))))
    return PrimitiveDesc(Eltwise(md, md, "relu"), PrimitiveAttr(), target, implementation), implementation


def test_a_primitive_has_the_seconds_of_its_creation_and_its_bytes_from_every_tier(
    store: CacheStore, near: CacheStore, tmp_path: Path
) -> None:
    pd, implementation = described(lambda _: SOUND)
    home = store.options.home
    url, key_file = f"unix://{home}/redis/redis.sock", f"{home}/signing.key"
    with CacheStore.connect(url, home=str(tmp_path / "far"), key_file=key_file, namespace=tmp_path.name) as far:
        first = compiled.cache(4, store)
        created, source = first.fetch(pd)
        found = [cache.fetch(pd) for cache in (first, compiled.cache(4, near), compiled.cache(4, far))]
    assert [source, *(source for _, source in found)] == ["created", "memory", "files", "redis"]
    assert created.creation_s > 0
    assert {(one.creation_s, one.nbytes) for one, _ in found} == {(created.creation_s, created.nbytes)}
    assert created.nbytes > 100
    assert implementation.times == 1


def test_equal_binaries_are_in_memory_once(store: CacheStore) -> None:
    # Given primitives that differ and have the same kernel, of a process whose cache holds two
    cache = compiled.cache(2, store)
    pds = [described(lambda _: SOUND, shares=True)[0] for _ in range(4)]
    one, two, three, again = (cache.fetch(pd)[0] for pd in (*pds[:3], pds[0]))
    assert one is not again
    # Then they share its bytes, evicted or not, and the store keeps no copy of their entries in memory
    assert one.entry.binaries[0]
    assert all(each.entry.binaries[0] is one.entry.binaries[0] for each in (two, three, again))
    assert not any(primitive_key(pd) in store._components.memory for pd in pds)


def test_a_capacity_of_0_empties_the_process_at_once_and_nothing_is_called_a_hit(
    policy: Policy, near: CacheStore
) -> None:
    provider = PrimitiveProvider(None, near, compiled.creator().create, policy(4))
    pd, implementation = described(lambda _: SOUND)
    before = near.stats()
    assert [provider.fetch(pd)[1] for _ in range(2)] == ["created", "memory"]
    provider.set_capacity(0)
    # The node's files have the entry; the memory of the process has nothing, and gets nothing
    assert [provider.fetch(pd)[1] for _ in range(3)] == ["files"] * 3
    assert provider.stats() == {
        "hits": 1,
        "misses": 4,
        "waits": 0,
        "evictions": 1,
        "size": 0,
        "capacity": 0,
        "derived": 0,
    }
    assert near.stats()["hits"]["memory"] == before["hits"]["memory"]
    assert (near.stats()["entries"], implementation.times) == (before["entries"] + 1, 1)
    provider.set_capacity(2)
    assert [provider.fetch(pd)[1] for _ in range(2)] == ["files", "memory"]


def test_each_request_is_counted_once_and_evictions_too(policy: Policy, near: CacheStore) -> None:
    provider = PrimitiveProvider(None, near, compiled.creator().create, policy(2))
    pds = [described(lambda _: SOUND)[0] for _ in range(3)]
    broken, _ = described(lambda _: BROKEN)
    for pd in (pds[0], pds[0], pds[1], pds[1]):
        provider.fetch(pd)
    with pytest.raises(CreationFailed):
        provider.fetch(broken)
    provider.fetch(pds[2])
    found = provider.stats()
    assert found == {"hits": 2, "misses": 4, "waits": 0, "evictions": 1, "size": 2, "capacity": 2, "derived": 0}
    provider.set_capacity(1)
    assert (provider.stats()["evictions"], provider.stats()["size"]) == (2, 1)


def test_the_api_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch, store: CacheStore) -> None:
    monkeypatch.delenv("POOLRT_PRIMITIVE_CACHE_CAPACITY", raising=False)
    assert PrimitiveProvider().cache.get_capacity() == LruPrimitiveCache().get_capacity() == 1024
    monkeypatch.setenv("POOLRT_PRIMITIVE_CACHE_CAPACITY", "7")
    assert PrimitiveProvider().cache.get_capacity() == CostPrimitiveCache().get_capacity() == 7
    assert PrimitiveProvider(9).cache.get_capacity() == LruPrimitiveCache(9).get_capacity() == 9


def test_the_cache_of_the_process_is_set_and_asked_by_name() -> None:
    code = """
import poolrt
from poolrt import Eltwise, Engine, MemoryDesc
engine, md = Engine("cpu"), MemoryDesc((64,), "f32")
print(poolrt.get_primitive_cache_capacity(), poolrt.get_primitive_cache_size())
first = Eltwise.PrimitiveDesc(engine, md, md, "relu").create().source
print(first, Eltwise.PrimitiveDesc(engine, md, md, "relu").create().source, poolrt.get_primitive_cache_size())
poolrt.set_primitive_cache_capacity(0)
print(poolrt.get_primitive_cache_capacity(), poolrt.get_primitive_cache_size())
fifo = Fifo(3)
poolrt.set_primitive_cache(fifo)
print(*(Eltwise.PrimitiveDesc(engine, md, md, "relu").create().source for _ in range(2)), fifo.get_size())
print(*poolrt.primitive_cache_stats().values())
try:
    poolrt.set_primitive_cache(Fifo)
except TypeError as error:
    print(error)
poolrt.set_primitive_cache_capacity(0)
print(fifo.get_capacity(), fifo.get_size(), Eltwise.PrimitiveDesc(engine, md, md, "relu").create().source)
from poolrt.workers.primitives.provider import primitive_provider
primitive_provider()._store.down()
"""
    assert run(f"from tests.workers.primitives.fifo import Fifo\n{code}") == [
        *("5 0", "created memory 1", "0 0", "files memory 1", "1 1 0 0 1 3 0"),
        "cache: expect an instance of a subclass of PrimitiveCache, got <class 'tests.workers.primitives.fifo.Fifo'>",
        "0 0 files",
    ]


@pytest.mark.parametrize("value", [-1, True, 1.5, "3", None])
def test_no_capacity_but_a_number_of_at_least_0_is_accepted(near: CacheStore, value: Any) -> None:
    provider = PrimitiveProvider(4, near)
    for cache in (LruPrimitiveCache(4), CostPrimitiveCache(4), provider):
        with pytest.raises(ValueError, match=f"capacity: expect 0 or more, got {re.escape(repr(value))}"):
            cache.set_capacity(value)
    provider.set_capacity(np.int64(3))  # type: ignore[arg-type]
    assert provider.stats()["capacity"] == 3


@pytest.mark.parametrize(
    ("method", "returned", "error", "text"),
    [
        ("get", 5, TypeError, "Wrong.get returned 5; return a future that was added, or None"),
        ("get_or_add", "text", TypeError, "Wrong.get_or_add returned 'text'; return a future"),
        ("get_or_add", completed("another"), ValueError, "Wrong returned the future of another key than it was given"),
        ("get_or_add", ZeroDivisionError("its own"), ZeroDivisionError, "its own"),
    ],
)
def test_a_users_cache_that_goes_wrong_is_named_and_no_other_primitive_is_returned(
    near: CacheStore, method: str, returned: Any, error: type[Exception], text: str
) -> None:
    class Wrong(Fifo):
        """A policy with a method that does something else."""

    def wrong(*_: object) -> Any:
        if isinstance(returned, Exception):
            raise returned
        return returned[1] if isinstance(returned, tuple) else returned

    setattr(Wrong, method, wrong)
    provider = PrimitiveProvider(None, near, compiled.creator().create, Wrong())
    pd, _ = described(lambda _: SOUND)
    with pytest.raises(error, match=text):
        provider.fetch(pd)
    provider.install(Fifo())
    assert provider.fetch(pd)[1] == "created"


def test_a_wrong_key_in_get_is_no_hit(store: CacheStore) -> None:
    class Wrong(Fifo):
        """A policy that finds whatever it has."""

        def get(self, key: Key) -> Future | None:
            return next(iter(self._futures.values()), None)

    provider = PrimitiveProvider(None, store, compiled.creator().create, Wrong())
    first, second = described(lambda _: SOUND)[0], described(lambda _: SOUND)[0]
    for pd in (first, second):
        assert provider.fetch(pd)[0].identity == primitive_key(pd).canonical


def test_a_cache_installed_during_a_creation_has_the_next_ones(near: CacheStore) -> None:
    cache = Counting(near)
    fifo = Fifo()

    def installed(time: int) -> Program:
        cache.install(fifo)
        return SOUND

    pd, implementation = described(installed)
    assert [cache.fetch(pd)[1] for _ in range(3)] == ["created", "files", "memory"]
    assert (implementation.times, fifo.get_size()) == (1, 1)
    assert cache.stats() == {
        "hits": 1,
        "misses": 1,
        "waits": 0,
        "evictions": 0,
        "size": 1,
        "capacity": 16,
        "derived": 0,
    }


def test_many_threads_that_ask_at_once_have_one_creation(policy: Policy, store: CacheStore) -> None:
    cache = Counting(store, cache=policy(16))
    # Given a creation that goes on until all threads have asked
    pd, implementation = described(lambda _: cache.after(THREADS, SOUND))
    sources, errors = all_at_once(cache, pd)
    assert errors == []
    assert sorted(sources) == ["created"] + ["waited"] * (THREADS - 1)
    assert implementation.times == 1
    # And later there is nothing to create or to look up
    assert cache.fetch(pd)[1] == "memory"
    counts = {"hits": 1, "misses": 1, "waits": THREADS - 1, "evictions": 0, "size": 1, "capacity": 16, "derived": 0}
    assert cache.stats() == counts


def test_a_cache_that_evicts_what_is_under_way_costs_no_second_creation(store: CacheStore) -> None:
    # Given a cache of one place, and threads that ask for two primitives by turns
    creator, created = compiled.creator(), list[str]()

    def create(pd: PrimitiveDesc) -> bytes:
        created.append(pd.impl_name())
        return creator.create(pd)

    provider = PrimitiveProvider(None, store, create, Careless(1))
    together = threading.Barrier(THREADS)
    pds = [described(lambda _: SOUND)[0] for _ in range(2)]

    def ask(number: int) -> list[bool]:
        together.wait(BOUND_S)
        turns = [pds[(number + turn) % 2] for turn in range(10)]
        return [provider.fetch(pd, BOUND_S)[0].identity == primitive_key(pd).canonical for pd in turns]

    with ThreadPoolExecutor(THREADS) as threads:
        assert all(right for found in threads.map(ask, range(THREADS), timeout=BOUND_S) for right in found)
    assert len(created) == len(set(created)) == 2
    found = provider.stats()
    assert found["hits"] + found["misses"] + found["waits"] == THREADS * 10
    assert (found["size"], found["evictions"] > 0) == (1, True)


def test_all_that_wait_for_a_failed_creation_get_an_equal_error_and_the_next_one_tries_again(
    policy: Policy, store: CacheStore
) -> None:
    cache = Counting(store, cache=policy(16))
    pd, implementation = described(lambda time: cache.after(THREADS, BROKEN) if time == 1 else SOUND)
    sources, errors = all_at_once(cache, pd)
    assert sources == []
    assert len(set(map(id, errors))) == len(errors) == THREADS
    for error in errors:
        assert isinstance(error, CreationFailed)
        assert (error.type, error.message, error.log) == (errors[0].type, errors[0].message, errors[0].log)  # type: ignore[attr-defined]
        assert "no_such_kernel" in str(error)
    assert cache.cache.get_size() == 0
    assert [cache.fetch(pd)[1] for _ in range(2)] == ["created", "memory"]
    assert implementation.times == 2
    counts = {"hits": 1, "misses": 2, "waits": THREADS - 1, "evictions": 0, "size": 1, "capacity": 16, "derived": 0}
    assert cache.stats() == counts


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["cpu", "opencl"])
@pytest.mark.one_in(2)
def test_threads_of_several_processes_have_one_creation_of_an_engine(
    kind: str, processes: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if kind == "opencl":
        request.getfixturevalue("device")
    command = [sys.executable, "-m", "tests.workers.primitives.crowd", kind, str(tmp_path)]
    crowd = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(processes)]
    try:
        found = [json.loads(process.communicate(timeout=ANSWER_S)[0]) for process in crowd]
    finally:
        for process in crowd:
            process.kill()
            process.communicate(timeout=BOUND_S)
        CacheStore.connect(home=str(tmp_path)).down()
    sources = [source for report in found for source in report["sources"]]
    assert (len(sources), sources.count("created")) == (processes * THREADS, 1)
    # And the compiler's error comes to all threads of a process; the next request tries again
    for report in found:
        assert (report["none"], report["failures"], report["different"]) == ([], THREADS, 1)
        assert (report["again"], report["attempts"]) == (["created", "memory"], 2)


def test_primitives_of_all_engines_share_one_capacity(device: str, tmp_path: Path) -> None:
    code = f"""
from poolrt.cachestore import CacheStore
from poolrt.workers import Eltwise, Engine, MemoryDesc
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.primitives.policies import CostPrimitiveCache, LruPrimitiveCache
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.interrupting import is_interrupted
from tests.workers import compiled
md = MemoryDesc((64,), "f32")
cpu, opencl = (Eltwise.PrimitiveDesc(Engine(kind), md, md, "relu") for kind in ("cpu", "opencl"))
with CacheStore.connect(home={str(tmp_path)!r}) as store:
    cache = compiled.cache(2, store)
    print(*(pd.create(cache).source for pd in (cpu, opencl, cpu)), cache.cache.get_size())
    cache.set_capacity(1)
    print(*(cache.cache.get(primitive_key(pd.pd)) is not None for pd in (cpu, opencl)), cache.cache.get_size())
    store.down()
"""
    assert python(code).splitlines() == ["created created memory 2", "True False 1"]


def test_an_interrupted_creator_is_replaced_by_one_that_waits(policy: Policy, store: CacheStore) -> None:
    cache = Counting(store, cache=policy(16))

    def interrupted(time: int) -> Program:
        if time == 1:
            cache.after(2, SOUND)
            raise KeyboardInterrupt
        return SOUND

    pd, implementation = described(interrupted)
    sources: list[str] = []
    ends: list[BaseException] = []

    def ask() -> None:
        try:
            sources.append(cache.fetch(pd, BOUND_S)[1])
        except BaseException as end:  # noqa: BLE001 - the interruption itself
            ends.append(end)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    assert [type(end) for end in ends] == [KeyboardInterrupt]
    assert sources == ["created"]
    assert implementation.times == 2


@pytest.mark.parametrize("file", ["primitives/provider", "single_flight", "cachestore/store"])
@pytest.mark.one_in(3)
def test_a_creation_that_was_interrupted_anywhere_is_made_by_the_next_call(store: CacheStore, file: str) -> None:
    """Of its own thread too, which is no leader any more, and at once."""
    moment = 0
    for moment in range(1, 10_000):
        cache = compiled.cache(4, store)
        pd, _ = described(lambda _: SOUND)
        store.remove(primitive_key(pd))
        interrupted = is_interrupted(partial(cache.fetch, pd, BOUND_S), moment, file)
        begin = time.monotonic()
        cache.fetch(pd, BOUND_S)
        with ThreadPoolExecutor(1) as other:
            other.submit(cache.fetch, pd, BOUND_S).result(BOUND_S)
        assert time.monotonic() - begin < BOUND_S / 2
        if not interrupted:
            break
    assert moment > 5


def test_waiting_for_another_thread_is_bounded(store: CacheStore) -> None:
    cache = compiled.cache(4, store)
    pd, _ = described(lambda _: SOUND)
    with ThreadPoolExecutor(1) as other:
        cache.cache.add(primitive_key(pd), other.submit(Future).result(BOUND_S))
    with pytest.raises(CreationTimeout, match="no result for entry"):
        cache.fetch(pd, 0.01)


def test_a_malformed_entry_is_removed_and_made_anew_by_the_next_one(store: CacheStore) -> None:
    cache = compiled.cache(4, store)
    pd, implementation = described(lambda _: SOUND)
    # Given a store that has something else under the key
    store.get_or_create(primitive_key(pd), lambda: b"no entry at all")
    with pytest.raises(CreationFailed, match="MalformedEntry"):
        cache.fetch(pd)
    assert cache.fetch(pd)[1] == "created"
    assert implementation.times == 1


def test_a_forked_child_creates_what_was_under_way_in_its_parent(tmp_path: Path) -> None:
    code = f"""
import os, threading
from poolrt.cachestore import CacheStore
from poolrt.workers import Eltwise, Engine, MemoryDesc
from poolrt.workers.primitives.cache import Future
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.primitives.policies import CostPrimitiveCache, LruPrimitiveCache
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.interrupting import is_interrupted
from tests.workers import compiled
store = CacheStore.connect(home={str(tmp_path)!r})
cache = compiled.cache(4, store)
engine, md = Engine("cpu"), MemoryDesc((64,), "f32")
pd = Eltwise.PrimitiveDesc(engine, md, md, "relu")
cache.cache.add(primitive_key(pd.pd), Future())
child = os.fork()
if child == 0:
    try:
        print(pd.create(cache).source, cache.cache.get_size(), flush=True)
    finally:
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
store.down()
"""
    assert run(code) == ["created 1"]


@pytest.mark.parametrize(
    "name",
    [*(pytest.param(f"policies.{one}PrimitiveCache", marks=pytest.mark.slow) for one in ("Lru", "Cost")), "fifo.Fifo"],
)
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(name: str, tmp_path: Path) -> None:
    module, _, policy = name.partition(".")
    home = "tests" if module == "fifo" else "poolrt"
    code = f"""
import os, threading
from poolrt.cachestore import CacheStore
from poolrt.workers import Eltwise, Engine, MemoryDesc
from {home}.workers.primitives.{module} import {policy}
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.interrupting import is_interrupted
from tests.workers import compiled
store, begun, forked = CacheStore.connect(home={str(tmp_path)!r}), threading.Event(), threading.Event()
def create(pd):
    begun.set()
    assert forked.wait(60)
    return compiled.creator().create(pd)
provider = PrimitiveProvider(None, store, create, {policy}(4))
pd = Eltwise.PrimitiveDesc(Engine("cpu"), MemoryDesc((64,), "f32"), MemoryDesc((64,), "f32"), "relu").pd
leader = threading.Thread(target=provider.fetch, args=(pd,))
leader.start()
assert begun.wait(60)
child = os.fork()
if child == 0:
    try:
        # The creation of the parent goes on in the parent: the child waits for that in the store, or sees its end first
        found = provider.fetch(pd, 60)[1]
        print(found in ("waited", "files", "redis", "derived"), provider.fetch(pd)[1], provider.stats()["size"], flush=True)
    finally:
        os._exit(0)
forked.set()
assert os.waitpid(child, 0)[1] == 0
leader.join(60)
print(provider.fetch(pd)[1])
store.down()
"""
    assert run(code) == ["True memory 1", "memory"]


def run(code: str) -> list[str]:
    """Return the lines that a new interpreter prints; the environment asks for a capacity of 5."""
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "POOLRT_PRIMITIVE_CACHE_CAPACITY": "5", "POOLRT_HOME": home}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=100, check=False
        )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
