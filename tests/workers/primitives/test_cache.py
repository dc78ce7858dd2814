"""The primitive cache of a process: shared futures, capacity, and one creation whatever threads and errors do."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore, CreationFailed, CreationTimeout, Key
from poolrt.workers import Eltwise
from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.implementations.program import Launch, Program
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.primitives.cache import Future, PrimitiveCache
from poolrt.workers.primitives.cached_primitive import CachedPrimitive
from poolrt.workers.primitives.entry import Entry
from poolrt.workers.primitives.key import primitive_key
from tests.workers import compiled
from tests.workers.own_process import ANSWER_S, python

from .crowd import BOUND_S, BROKEN, THREADS, Counting, Described, all_at_once

ROOT = Path(__file__).resolve().parents[3]

#: Moves 100 bytes.
SOUND = Program(
    (KernelSpec.of("concat"),),
    (Launch(0, (("m", (int(Arg.SRC), 0)), ("m", (int(Arg.DST), 0)), ("t", 0)), 0),),
    bytes(64),
)
NUMBERS = iter(range(1 << 30))


def described(describe: Callable[[int], Program]) -> tuple[PrimitiveDesc, Described]:
    """Return a primitive descriptor that nobody has asked for yet, and its implementation."""
    implementation = Described(f"test:{next(NUMBERS)}", describe)
    md = MemoryDesc((25,), "f32")
    return PrimitiveDesc(Eltwise(md, md, "relu"), PrimitiveAttr(), cpu_target(), implementation), implementation


def completed(name: str) -> tuple[Key, Future]:
    """Return a key and a future that has its result."""
    key, future = Key({"primitive": name}), Future()
    future.set_result(CachedPrimitive(key.canonical, Entry(name, "cpu", (), (), (), b"", 0)))
    return key, future


def test_the_first_to_ask_adds_its_future_and_all_others_share_it(store: CacheStore) -> None:
    cache = compiled.cache(4, store)
    key, future = completed("one")
    assert cache.get_or_add(key, future) is None
    assert cache.get_or_add(Key({"primitive": "one"}), Future()) is future
    assert cache.get_size() == 1


def test_the_least_recently_used_is_evicted(store: CacheStore) -> None:
    cache = compiled.cache(2, store)
    (a, first), (b, second), (c, third) = completed("a"), completed("b"), completed("c")
    cache.get_or_add(a, first)
    cache.get_or_add(b, second)
    assert cache.get_or_add(a, Future()) is first
    cache.get_or_add(c, third)
    assert [cache.get(key) for key in (a, b, c)] == [first, None, third]
    assert cache.get_size() == cache.get_capacity() == 2


def test_threads_that_evict_one_another_find_what_they_ask_for(store: CacheStore) -> None:
    cache, entries = (
        compiled.cache(4, store),
        [completed(str(number)) for number in range(8)],
    )

    def ask(seed: int) -> bool:
        rng = random.Random(seed)
        chosen = [rng.choice(entries) for _ in range(500)]
        found = [(cache.get_or_add(key, future), future) for key, future in chosen]
        return all(one is None or one is other for one, other in found)

    with ThreadPoolExecutor(THREADS) as threads:
        assert all(threads.map(ask, range(THREADS), timeout=BOUND_S))
    assert cache.get_size() == 4


def test_what_is_under_way_is_not_evicted(store: CacheStore) -> None:
    cache = compiled.cache(1, store)
    key, (other, ready) = Key({"primitive": "under way"}), completed("ready")
    under_way = Future()
    cache.get_or_add(key, under_way)
    cache.get_or_add(other, ready)
    assert cache.get(key) is under_way
    cache.set_capacity(0)
    assert cache.get(key) is under_way
    # Once it is completed, it is evicted like any other
    under_way.set_result(ready.result(0))
    cache.set_capacity(0)
    assert cache.get_size() == 0


def test_only_a_failed_future_is_removed_as_invalidated(store: CacheStore) -> None:
    cache = compiled.cache(4, store)
    for end, removed in ((None, False), (ValueError("no"), True)):
        key, future = Key({"primitive": str(end)}), Future()
        cache.get_or_add(key, future)
        cache.remove_if_invalidated(key)
        assert cache.get(key) is future
        if end is not None:
            future.set_exception(end)
        cache.remove_if_invalidated(key)
        assert (cache.get(key) is None) == removed


def test_a_capacity_of_0_clears_the_cache_and_turns_it_off(store: CacheStore) -> None:
    cache = compiled.cache(4, store)
    key, future = completed("kept no more")
    cache.get_or_add(key, future)
    cache.set_capacity(0)
    assert (cache.get_size(), cache.get_capacity()) == (0, 0)
    assert cache.get_or_add(key, future) is None
    assert cache.get_size() == 0
    pd, implementation = described(lambda _: SOUND)
    assert [cache.fetch(pd)[1] for _ in range(2)] == ["created", "memory"]  # of the store
    assert (implementation.times, cache.get_size()) == (1, 0)
    with pytest.raises(ValueError, match="capacity: expect 0 or more, got -1"):
        cache.set_capacity(-1)


def test_the_api_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch, store: CacheStore) -> None:
    monkeypatch.delenv("POOLRT_PRIMITIVE_CACHE_CAPACITY", raising=False)
    assert PrimitiveCache().get_capacity() == 1024
    monkeypatch.setenv("POOLRT_PRIMITIVE_CACHE_CAPACITY", "7")
    assert PrimitiveCache().get_capacity() == 7
    assert PrimitiveCache(9).get_capacity() == 9


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
from poolrt.workers.primitives.cache import primitive_cache
primitive_cache()._store.down()
"""
    assert run(code) == ["5 0", "created memory 1", "0 0"]


def test_many_threads_that_ask_at_once_have_one_creation(store: CacheStore) -> None:
    cache = Counting(store)
    # Given a creation that goes on until all threads have asked
    pd, implementation = described(lambda _: cache.after(THREADS, SOUND))
    sources, errors = all_at_once(cache, pd)
    assert errors == []
    assert sorted(sources) == ["created"] + ["waited"] * (THREADS - 1)
    assert implementation.times == 1
    # And later there is nothing to create or to look up
    assert cache.fetch(pd)[1] == "memory"


def test_all_that_wait_for_a_failed_creation_get_an_equal_error_and_the_next_one_tries_again(store: CacheStore) -> None:
    cache = Counting(store)
    pd, implementation = described(lambda time: cache.after(THREADS, BROKEN) if time == 1 else SOUND)
    sources, errors = all_at_once(cache, pd)
    assert sources == []
    assert len(set(map(id, errors))) == len(errors) == THREADS
    for error in errors:
        assert isinstance(error, CreationFailed)
        assert (error.type, error.message, error.log) == (errors[0].type, errors[0].message, errors[0].log)  # type: ignore[attr-defined]
        assert "no_such_kernel" in str(error)
    assert cache.get_size() == 0
    assert [cache.fetch(pd)[1] for _ in range(2)] == ["created", "memory"]
    assert implementation.times == 2


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["cpu", "opencl"])
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
    sources = [source for told in found for source in told["sources"]]
    assert (len(sources), sources.count("created")) == (processes * THREADS, 1)
    # And the compiler's error comes to all threads of a process; whoever asks next tries again
    for told in found:
        assert (told["none"], told["failures"], told["different"]) == ([], THREADS, 1)
        assert (told["again"], told["attempts"]) == (["created", "memory"], 2)


def test_primitives_of_all_engines_share_one_capacity(device: str, tmp_path: Path) -> None:
    code = f"""
from poolrt.cachestore import CacheStore
from poolrt.workers import Eltwise, Engine, MemoryDesc
from poolrt.workers.primitives.key import primitive_key
from tests.workers import compiled
md = MemoryDesc((64,), "f32")
cpu, opencl = (Eltwise.PrimitiveDesc(Engine(kind), md, md, "relu") for kind in ("cpu", "opencl"))
with CacheStore.connect(home={str(tmp_path)!r}) as store:
    cache = compiled.cache(2, store)
    print(*(pd.create(cache).source for pd in (cpu, opencl, cpu)), cache.get_size())
    cache.set_capacity(1)
    print(*(cache.get(primitive_key(pd.pd)) is not None for pd in (cpu, opencl)), cache.get_size())
    store.down()
"""
    assert python(code).splitlines() == ["created created memory 2", "True False 1"]


def test_an_interrupted_creator_is_replaced_by_one_that_waits(store: CacheStore) -> None:
    cache = Counting(store)

    def interrupted(time: int) -> Program:
        if time == 1:
            cache.after(2, SOUND)
            raise KeyboardInterrupt
        return SOUND

    pd, implementation = described(interrupted)
    told: list[str] = []
    ends: list[BaseException] = []

    def ask() -> None:
        try:
            told.append(cache.fetch(pd, BOUND_S)[1])
        except BaseException as end:  # noqa: BLE001 - the interruption itself
            ends.append(end)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    assert [type(end) for end in ends] == [KeyboardInterrupt]
    assert told == ["created"]
    assert implementation.times == 2


def test_waiting_for_another_thread_is_bounded(store: CacheStore) -> None:
    cache = compiled.cache(4, store)
    pd, _ = described(lambda _: SOUND)
    with ThreadPoolExecutor(1) as other:
        cache.get_or_add(primitive_key(pd), other.submit(Future).result(BOUND_S))
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
from tests.workers import compiled
store = CacheStore.connect(home={str(tmp_path)!r})
cache = compiled.cache(4, store)
engine, md = Engine("cpu"), MemoryDesc((64,), "f32")
pd = Eltwise.PrimitiveDesc(engine, md, md, "relu")
cache.get_or_add(primitive_key(pd.pd), Future())
child = os.fork()
if child == 0:
    try:
        print(pd.create(cache).source, cache.get_size(), flush=True)
    finally:
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
store.down()
"""
    assert run(code) == ["created 1"]


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
