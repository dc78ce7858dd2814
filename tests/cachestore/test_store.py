"""The promises of a store, with a Redis server of each version, behind TLS, embedded, or away."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CacheStore, CreationFailed, CreationTimeout, Found, Key
from poolrt.cachestore.single_flight import SharedFuture

from .conftest import StoreMaker

KEYS = [Key({"primitive": "test", "n": number}) for number in range(12)]
OpenStore = Callable[..., CacheStore]


#: The kinds of Redis that a store can meet: by default two that differ most, and none.
BACKENDS = ["embedded", "valkey server", "away"] + [
    pytest.param(backend, marks=pytest.mark.slow) for backend in ("server", "other server", "secure server")
]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Return each kind of Redis that a store can meet."""
    return str(request.param)


@pytest.fixture
def open_store(
    request: pytest.FixtureRequest, backend: str, make_store: StoreMaker, tmp_path: Path, namespace: str
) -> OpenStore:
    """Return a maker of stores on one backend and one home."""
    options: dict[str, Any] = {}
    if backend in ("other server", "valkey server"):
        options["url"] = request.getfixturevalue(backend.replace(" ", "_")).url
    elif backend == "secure server":
        options["url"] = request.getfixturevalue("secure_server").address_of_user(namespace)
    elif backend != "server":
        options["url"] = {"embedded": None, "away": f"unix://{tmp_path}/no-server"}[backend]
    return lambda **more: make_store(**{**options, **more})


@pytest.fixture
def store(open_store: OpenStore) -> CacheStore:
    """Return one store."""
    return open_store()


class Creator:
    """Make a payload and count how often."""

    def __init__(self, payload: bytes = b"payload", error: Exception | None = None) -> None:
        self.calls = 0
        self._payload = payload
        self._error = error

    def __call__(self) -> bytes:
        self.calls += 1
        if self._error is not None:
            raise self._error
        return self._payload


def test_an_entry_is_created_once_and_found_from_then_on(store: CacheStore, open_store: OpenStore) -> None:
    creator = Creator()
    assert store.get(KEYS[0]) is None
    assert store.fetch_or_create(KEYS[0], creator).source == "created"
    assert store.fetch_or_create(KEYS[0], creator).source == "memory"
    assert open_store().fetch_or_create(KEYS[0], creator).source == "files"
    assert store.get(KEYS[0]) == store.get_or_create(KEYS[0], creator) == b"payload"
    assert creator.calls == 1


@pytest.mark.parametrize("payload", [b"", b"\0" * 100_000])
def test_any_bytes_can_be_stored(store: CacheStore, open_store: OpenStore, payload: bytes) -> None:
    store.get_or_create(KEYS[0], Creator(payload))
    assert open_store().get(KEYS[0]) == payload


def test_several_keys_are_found_in_order(store: CacheStore, open_store: OpenStore) -> None:
    store.get_or_create(KEYS[1], Creator(b"one"))
    store.get_or_create(KEYS[3], Creator(b"three"))
    other = open_store()
    other.get(KEYS[1])
    assert other.get_many(KEYS[:4]) == [None, Found(b"one", "memory"), None, Found(b"three", "files")]


def test_a_removed_entry_is_gone_for_everyone(store: CacheStore, open_store: OpenStore) -> None:
    other = open_store()
    store.get_or_create(KEYS[0], Creator())
    assert other.get(KEYS[0]) == b"payload"
    assert store.remove(KEYS[0])
    assert (store.get(KEYS[0]), other.get(KEYS[0])) == (None, None)
    assert not store.remove(KEYS[0])
    assert store.size == 0


def test_clearing_removes_everything_for_everyone(store: CacheStore, open_store: OpenStore) -> None:
    other = open_store()
    for key in KEYS:
        store.get_or_create(key, Creator())
    other.get_many(KEYS)
    store.clear()
    assert store.get_many(KEYS) == other.get_many(KEYS) == [None] * len(KEYS)
    assert (store.size, store.stats()["bytes"]) == (0, 0)
    assert store.fetch_or_create(KEYS[0], Creator()).source == "created"


@pytest.mark.parametrize("change", ["clear", "remove", "off"])
def test_however_often_it_was_hit_in_memory_a_neighbours_change_holds_at_once(
    store: CacheStore, open_store: OpenStore, change: str
) -> None:
    other = open_store()
    store.get_or_create(KEYS[0], Creator())
    for _ in range(5):
        assert other.get(KEYS[0]) == other.get_or_create(KEYS[0], Creator()) == b"payload"
    if change == "clear":
        store.clear()
    elif change == "remove":
        store.remove(KEYS[0])
    else:
        store.set_capacity(0)
    assert other.get(KEYS[0]) is None
    assert other.fetch_or_create(KEYS[0], Creator()).source == "created"


def test_hits_of_every_tier_are_counted_once(store: CacheStore, open_store: OpenStore) -> None:
    store.get_or_create(KEYS[0], Creator())
    for _ in range(1000):
        store.get(KEYS[0])
    with open_store() as other:
        for _ in range(100):
            other.get_or_create(KEYS[0], Creator())
        other.get(KEYS[1])
    store.close()
    stats = open_store().stats()
    assert stats["hits"] == {"memory": 1099, "files": 1, "prebuilt": 0, "redis": 0}
    assert stats["misses"] == 2


def test_a_look_up_for_creators_counts_each_key_once_in_the_tiers_that_were_asked(
    store: CacheStore, open_store: OpenStore, backend: str
) -> None:
    assert store.get_many(KEYS[:2], creates=True) == [None, None]
    with open_store() as creator:
        for key in KEYS[:2]:
            creator.get_or_create(key, Creator())
    with open_store() as other:
        assert None not in other.get_many(KEYS[:2], creates=True)
        other.get(KEYS[0])
    stats = store.stats()
    assert (stats["misses"], stats["creations"], stats["waits"]) == (2, 2, 0)
    assert stats["tiers"] == {
        "process": {"hits": 1, "misses": 4},
        "files": {"hits": 2, "misses": 2},
        "redis": {"hits": 0, "misses": 0 if backend == "away" else 2},
    }


def test_what_is_being_created_during_a_clear_is_not_kept(store: CacheStore, open_store: OpenStore) -> None:
    def create() -> bytes:
        open_store().clear()
        return b"old"

    assert store.get_or_create(KEYS[0], create) == b"old"
    assert open_store().get(KEYS[0]) is None


def test_a_failed_creation_leaves_nothing_and_is_tried_again(store: CacheStore) -> None:
    class CompilerError(Exception):
        """An error with a log."""

        log = "line 3: no such instruction"

    failing = Creator(error=CompilerError("cannot compile"))
    for calls in (1, 2):
        with pytest.raises(CreationFailed) as caught:
            store.get_or_create(KEYS[0], failing)
        assert (caught.value.type, caught.value.message) == (CompilerError.__qualname__, "cannot compile")
        assert caught.value.log == "line 3: no such instruction"
        assert isinstance(caught.value.__cause__, CompilerError)
        assert failing.calls == calls
    assert store.get_or_create(KEYS[0], Creator()) == b"payload"
    assert store.stats()["creation_errors"] == 2


def test_a_failure_without_a_log_carries_the_traceback(store: CacheStore) -> None:
    with pytest.raises(CreationFailed) as caught:
        store.get_or_create(KEYS[0], Creator(error=KeyError("x")))
    assert "Traceback" in caught.value.log
    assert "KeyError" in caught.value.log


def test_a_creator_that_returns_no_bytes_has_failed(store: CacheStore) -> None:
    creator: Any = lambda: "text"  # noqa: E731
    with pytest.raises(CreationFailed, match="TypeError: a creator returns bytes, not str"):
        store.get_or_create(KEYS[0], creator)


def test_an_interrupted_creation_can_be_taken_up_at_once(store: CacheStore) -> None:
    def interrupted() -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.get_or_create(KEYS[0], interrupted)
    begin = time.monotonic()
    assert store.get_or_create(KEYS[0], Creator()) == b"payload"
    assert time.monotonic() - begin < 2.0


def test_a_creation_may_need_other_entries(store: CacheStore) -> None:
    inner = Creator(b"inner")
    assert store.get_or_create(KEYS[0], lambda: store.get_or_create(KEYS[1], inner) + b" outer") == b"inner outer"


def test_a_creation_that_needs_itself_fails_instead_of_waiting_for_ever(store: CacheStore) -> None:
    with pytest.raises(CreationFailed, match="asked for that same entry"):
        store.get_or_create(KEYS[0], lambda: store.get_or_create(KEYS[0], Creator()))


def test_of_many_threads_one_creates(store: CacheStore) -> None:
    calls: list[int] = []
    begin = threading.Barrier(8)

    def create() -> bytes:
        calls.append(1)
        time.sleep(0.05)
        return b"payload"

    def ask() -> str:
        begin.wait(10)
        return store.fetch_or_create(KEYS[0], create).source

    with ThreadPoolExecutor(8) as pool:
        sources = sorted(future.result() for future in [pool.submit(ask) for _ in range(8)])
    assert len(calls) == 1
    assert sources.count("created") == 1
    assert set(sources) <= {"created", "waited", "memory"}


def threads_in(function: Callable[..., object]) -> int:
    """Return how many threads are in a call of a function."""
    stacks = [traceback.walk_stack(frame) for frame in sys._current_frames().values()]
    return sum(any(frame.f_code is function.__code__ for frame, _ in stack) for stack in stacks)


def test_all_threads_get_the_creators_error(store: CacheStore) -> None:
    begin = threading.Barrier(8)
    started = threading.Event()
    calls: list[int] = []

    def create() -> bytes:
        calls.append(1)
        started.wait(10)
        raise ValueError("broken")

    def ask() -> CreationFailed:
        begin.wait(10)
        with pytest.raises(CreationFailed) as caught:
            store.get_or_create(KEYS[0], create)
        return caught.value

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(ask) for _ in range(8)]
        deadline = time.monotonic() + 10
        while threads_in(SharedFuture.result) < 7:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        started.set()
        errors = [future.result() for future in futures]
    assert len(calls) == 1
    assert {(error.type, error.message) for error in errors} == {("ValueError", "broken")}
    assert len({id(error) for error in errors}) == 8


def test_a_thread_waits_no_longer_than_its_timeout(store: CacheStore) -> None:
    creating, enough = threading.Event(), threading.Event()

    def create() -> bytes:
        creating.set()
        enough.wait(10)
        return b"payload"

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(store.get_or_create, KEYS[0], create)
        assert creating.wait(10)
        with pytest.raises(CreationTimeout):
            store.get_or_create(KEYS[0], Creator(), timeout=0.05)
        enough.set()
        assert first.result(10) == b"payload"


def test_another_store_waits_no_longer_than_its_timeout(store: CacheStore, open_store: OpenStore) -> None:
    other = open_store()
    begin = time.monotonic()

    def create() -> bytes:
        with pytest.raises(CreationTimeout):
            other.get_or_create(KEYS[0], Creator(), timeout=0.1)
        return b"payload"

    assert store.get_or_create(KEYS[0], create) == b"payload"
    assert time.monotonic() - begin < 5.0


def test_lowering_the_capacity_drops_the_least_recently_used(store: CacheStore, open_store: OpenStore) -> None:
    for key in KEYS[:5]:
        store.get_or_create(key, Creator())
    open_store().get(KEYS[0])
    store.stats()
    store.set_capacity(2)
    assert (store.capacity, store.size) == (2, 2)
    assert [found is not None for found in store.get_many(KEYS[:5])] == [True, False, False, False, True]


def test_a_full_store_drops_the_least_recently_used_for_a_new_entry(store: CacheStore, open_store: OpenStore) -> None:
    store.set_capacity(3)
    for key in KEYS[:4]:
        store.get_or_create(key, Creator())
    assert store.size == 3
    assert open_store().get(KEYS[0]) is None
    assert open_store().get(KEYS[3]) == b"payload"


def test_a_capacity_of_zero_clears_and_turns_off(store: CacheStore, open_store: OpenStore) -> None:
    other = open_store()
    store.get_or_create(KEYS[0], Creator())
    other.get(KEYS[0])
    store.set_capacity(0)
    creator = Creator()
    for asked in (store, other, store):
        assert asked.get(KEYS[0]) is None
        assert asked.fetch_or_create(KEYS[0], creator).source == "created"
    assert creator.calls == 3
    assert (store.capacity, store.size) == (0, 0)
    store.set_capacity(8)
    assert store.get(KEYS[0]) is None
    store.get_or_create(KEYS[0], creator)
    assert other.get(KEYS[0]) == b"payload"
    assert creator.calls == 4


def test_a_failing_creator_fails_alike_when_the_store_is_off(store: CacheStore) -> None:
    store.set_capacity(0)
    with pytest.raises(CreationFailed, match="ValueError: x"):
        store.get_or_create(KEYS[0], Creator(error=ValueError("x")))


def test_an_entry_larger_than_the_capacity_in_bytes_is_not_kept(store: CacheStore) -> None:
    store.set_capacity(bytes=10_000)
    assert store.get_or_create(KEYS[0], Creator(b"x" * 20_000)) == b"x" * 20_000
    assert store.get_or_create(KEYS[1], Creator(b"x")) == b"x"
    assert store.size == 1
    assert store.stats()["capacity_bytes"] == 10_000


def test_a_negative_capacity_is_refused(store: CacheStore) -> None:
    with pytest.raises(ValueError, match="expect 0 or more"):
        store.set_capacity(-1)
    with pytest.raises(ValueError, match="expect 0 or more"):
        store.set_capacity(bytes=-1)


def test_the_capacity_that_was_set_comes_before_the_default(store: CacheStore, open_store: OpenStore) -> None:
    assert store.capacity == 1024
    store.set_capacity(7)
    assert open_store(capacity=500).capacity == 7


def test_a_capacity_of_zero_of_one_process_keeps_nothing_in_its_memory(open_store: OpenStore) -> None:
    off = open_store(capacity=0)
    creator = Creator()
    found = [off.fetch_or_create(KEYS[0], creator).source for _ in range(3)]
    assert (found, creator.calls) == (["created", "files", "files"], 1)
    assert open_store().get(KEYS[0]) == b"payload"


def test_the_capacity_of_a_process_changes_at_once_and_in_its_children_too(store: CacheStore) -> None:
    creator = Creator()
    for key in KEYS[:3]:
        store.get_or_create(key, creator)
    store.set_memory_capacity(2)
    assert [store.fetch_or_create(key, creator).source for key in reversed(KEYS[:3])] == ["memory", "memory", "files"]
    store.set_memory_capacity(0)
    assert [store.fetch_or_create(key, creator).source for key in KEYS[:3]] == ["files"] * 3
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, " ".join(store.fetch_or_create(KEYS[0], creator).source for _ in range(2)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert told.read() == "files files"
    os.wait()
    assert (store.size, store.capacity, creator.calls) == (3, 1024, 3)
    for value in (-1, 1.5, True):
        with pytest.raises(ValueError, match=f"capacity: expect 0 or more, got {value}"):
            store.set_memory_capacity(value)  # type: ignore[arg-type]


def slow() -> bytes:
    """Create for 20 ms."""
    time.sleep(0.02)
    return b"x"


def test_every_call_is_counted(store: CacheStore, open_store: OpenStore, backend: str) -> None:
    store.get(KEYS[0])
    begin = time.monotonic()
    store.get_or_create(KEYS[0], slow)
    creation_s = time.monotonic() - begin
    store.get(KEYS[0])
    open_store().get(KEYS[0])
    stats = store.stats()
    assert stats["hits"] == {"memory": 1, "files": 1, "prebuilt": 0, "redis": 0}
    assert (stats["misses"], stats["creations"], stats["waits"]) == (2, 1, 0)
    assert (stats["entries"], stats["capacity"], stats["capacity_bytes"]) == (1, 1024, 0)
    assert stats["bytes"] == store.entries()[0].bytes
    assert 0.02 <= stats["seconds_saved"] <= creation_s
    assert (stats["degraded"] > 0) == (backend == "away")


def test_the_listing_shows_what_is_there(store: CacheStore) -> None:
    store.get_or_create(KEYS[0], Creator(b"x" * 100))
    store.get_or_create(Key({"n": 1}), Creator())
    newer, older = store.entries()
    assert (newer.kind, older.kind, older.digest) == (None, "test", KEYS[0].digest)
    assert older.bytes > 100
    assert older.age_s is not None
    assert 0.0 <= older.age_s < 60.0
    assert older.as_dict()["digest"] == KEYS[0].digest


# Python 3.12 warns of threads at a fork: other tests of the session may have left some in libraries.
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_a_store_that_works(store: CacheStore) -> None:
    store.get_or_create(KEYS[0], Creator())
    child = os.fork()
    if child == 0:
        found = store.get(KEYS[0]) == b"payload" and store.get_or_create(KEYS[1], Creator(b"child")) == b"child"
        store.close()
        os._exit(0 if found else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.get(KEYS[1]) == b"child"


def test_a_closed_store_opens_again_on_need(store: CacheStore) -> None:
    store.get_or_create(KEYS[0], Creator())
    store.close()
    store.close()
    assert store.get(KEYS[0]) == b"payload"
    assert store.stats()["creations"] == 1


def test_namespaces_are_strangers(store: CacheStore, open_store: OpenStore) -> None:
    store.get_or_create(KEYS[0], Creator())
    assert open_store(namespace="another").get(KEYS[0]) is None
