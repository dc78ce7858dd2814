"""A read-only store finds what others have made, makes the rest for itself, and changes not a byte anywhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CacheStore, CreationFailed, Key, KeyFileRefused, StoreReadOnly, StoreUnavailable
from poolrt.cachestore.node_state import NodeState, NodeStateFile, NodeStateView
from poolrt.cachestore.redis.breaker import CircuitBreaker
from poolrt.cachestore.redis.embedded import EmbeddedServer
from poolrt.cachestore.redis.lease import Terms
from poolrt.cachestore.redis.read_only import ReadOnlyConnection, ReadOnlyTier
from poolrt.cachestore.redis.replies import unused
from poolrt.cachestore.redis.schema import Schema
from poolrt.cachestore.stats import Sent

from .conftest import StoreMaker
from .names import schema_of, write_key
from .server import RedisServer

KEYS = [Key({"primitive": "test", "n": number}) for number in range(6)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home folder."""
    return tmp_path / "home"


@pytest.fixture
def url(own_server: RedisServer) -> str:
    """Return the URL of a server that no other test uses."""
    return own_server.url


@pytest.fixture
def make(make_store: StoreMaker, url: str, home: Path) -> StoreMaker:
    """Return a maker of stores on that server and home."""
    return lambda **more: make_store(**{"url": url, "home": str(home), **more})


@pytest.fixture
def look(own_server: RedisServer, home: Path) -> Callable[[], object]:
    """Return a function that returns all data in files, with their times, and in Redis, with its count of changes."""

    def see() -> object:
        files = {}
        for path in [home, *sorted(home.rglob("*"))]:
            if path.exists():
                status = path.lstat()
                content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
                files[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, content)
        with own_server.client() as client:
            values = {name: (client.dump(name), client.pttl(name) >= 0) for name in client.keys("*")}
            # Redis counts every command that changed a key, even one that was changed back.
            changes = client.info("persistence")["rdb_changes_since_last_save"]
        return files, values, changes

    return see


def fill(store: CacheStore, keys: list[Key]) -> None:
    """Create entries and hand everything on, so that nothing is left to be written later."""
    with store:
        for key in keys:
            store.get_or_create(key, lambda key=key: payload(key))  # type: ignore[misc]
        store.stats()


def payload(key: Key) -> bytes:
    """Return the payload of a key."""
    return key.canonical * 20


def exercise(store: CacheStore) -> None:
    """Do everything that a read-only store can do."""
    with store:
        for _ in range(2):
            assert store.get(KEYS[0]) == payload(KEYS[0])
            assert store.get_or_create(KEYS[5], lambda: payload(KEYS[5])) == payload(KEYS[5])
            store.get_many(KEYS)
            assert store.size == len(store.entries()) == 3
            assert store.capacity == 1024
            store.stats()
            assert store.key_of(KEYS[0].digest) == KEYS[0]
            assert store.verify().problems == ()
        with pytest.raises(CreationFailed):
            store.get_or_create(KEYS[4], failing)


def failing() -> bytes:
    """Fail."""
    raise ValueError("no")


def test_nothing_changes_in_files_or_in_redis(make: StoreMaker, look: Callable[[], object], tmp_path: Path) -> None:
    # Given some entries in files and in Redis
    fill(make(), KEYS[:3])
    before = look()
    # When a read-only store does all it can
    exercise(make(read_only=True))
    # Then there is no trace of it
    assert look() == before


def test_nothing_changes_where_there_is_nothing_yet(
    make: StoreMaker, look: Callable[[], object], home: Path, tmp_path: Path
) -> None:
    key_file = write_key(tmp_path / "key")
    fill(make(home=str(tmp_path / "elsewhere"), key_file=key_file), KEYS[:3])
    before = look()
    exercise(make(read_only=True, key_file=key_file))
    assert look() == before
    assert not home.exists()


def test_nothing_changes_when_redis_is_away(make: StoreMaker, look: Callable[[], object]) -> None:
    fill(make(), KEYS[:3])
    before = look()
    exercise(make(read_only=True, url="unix:///no-server"))
    assert look() == before


def test_bad_entries_are_refused_and_stay_where_they_are(
    make: StoreMaker, look: Callable[[], object], home: Path, own_server: RedisServer
) -> None:
    # Given a bad file and, of another key, a bad value
    writer = make()
    fill(writer, KEYS[:3])
    (file,) = home.glob(f"*/entries/*/{KEYS[0].digest}")
    file.write_bytes(b"rubbish")
    with own_server.client() as client:
        client.set(schema_of(writer).value(KEYS[1].digest), b"rubbish")
        client.set(schema_of(writer).value(KEYS[3].digest), b"rubbish")
    before = look()
    # When they are asked for
    with make(read_only=True) as store:
        assert store.fetch_or_create(KEYS[0], bytes).source == "redis"
        assert store.fetch_or_create(KEYS[3], lambda: b"mine").source == "created"
        # Then they are counted and reported
        assert store.stats()["corrupt"] == 2
        assert {(problem.digest, problem.tier) for problem in store.verify().problems} == {
            (KEYS[0].digest, "files"),
            (KEYS[1].digest, "redis"),
        }
    # and stay
    assert look() == before


def test_what_it_makes_is_for_itself_and_counted_by_itself(make: StoreMaker) -> None:
    fill(make(), KEYS[:3])
    calls = []
    with make(read_only=True) as store, make() as other:
        before = other.stats()

        def create() -> bytes:
            calls.append(1)
            return b"mine"

        assert [store.fetch_or_create(KEYS[3], create).source for _ in range(3)] == ["created", "memory", "memory"]
        assert store.get(KEYS[0]) == payload(KEYS[0])
        mine, theirs = store.stats(), other.stats()
        assert (mine["creations"], mine["misses"]) == (before["creations"] + 1, before["misses"] + 1)
        assert mine["hits"] == {"memory": 2, "files": before["hits"]["files"] + 1, "prebuilt": 0, "redis": 0}
        assert mine["seconds_saved"] > 0
        # A second look counts nothing twice.
        assert store.stats()["creations"] == mine["creations"]
        assert theirs == before
        assert other.get(KEYS[3]) is None
    assert calls == [1]


def test_of_its_threads_one_creates(make: StoreMaker, tmp_path: Path) -> None:
    key_file = write_key(tmp_path / "key")
    with make(read_only=True, key_file=key_file) as store, ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda _: store.fetch_or_create(KEYS[0], lambda: b"mine"), range(8)))
    assert sorted(outcome.source for outcome in outcomes).count("created") == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.remove(KEYS[0]),
        lambda store: store.clear(),
        lambda store: store.set_capacity(3),
        lambda store: store.import_("anything"),
        lambda store: store.down(),
    ],
    ids=["remove", "clear", "set_capacity", "import_", "down"],
)
def test_a_change_is_refused(
    make: StoreMaker, look: Callable[[], object], change: Callable[[CacheStore], object]
) -> None:
    fill(make(), KEYS[:3])
    before = look()
    with make(read_only=True) as store, pytest.raises(StoreReadOnly, match="the store is read-only and does not"):
        change(store)
    assert look() == before


def test_it_can_export(make: StoreMaker, look: Callable[[], object], tmp_path: Path) -> None:
    fill(make(), KEYS[:3])
    before = look()
    assert make(read_only=True).export(tmp_path / "a.bundle").entries == 3
    assert look() == before
    assert make(namespace="another").import_(tmp_path / "a.bundle").imported == 3


def test_without_a_key_it_makes_none_and_trusts_nothing(
    make: StoreMaker, home: Path, tmp_path: Path, look: Callable[[], object]
) -> None:
    fill(make(home=str(tmp_path / "elsewhere")), KEYS[:1])
    before = look()
    with make(read_only=True) as store:
        for key in KEYS[:2]:
            with pytest.raises(KeyFileRefused, match="there is no such file"):
                store.get(key)
    assert look() == before


def test_it_follows_a_clear_and_a_capacity_that_redis_has_heard_of(
    make: StoreMaker, tmp_path: Path, home: Path
) -> None:
    # Given files on this node
    fill(make(), KEYS[:3])
    key_file = str(home / "signing.key")
    with make(read_only=True) as store:
        assert store.get(KEYS[0]) == payload(KEYS[0])
        # When another node clears and sets a capacity
        with make(home=str(tmp_path / "elsewhere"), key_file=key_file) as other:
            other.clear()
            other.set_capacity(7)
        # Then the files count no more, once Redis has been asked for anything
        assert store.get(KEYS[4]) is None
        assert store.get_many(KEYS[:3]) == [None] * 3
        assert store.capacity == 7
        with make(home=str(tmp_path / "elsewhere"), key_file=key_file) as other:
            other.set_capacity(0)
        store.get(KEYS[4])
        assert [store.fetch_or_create(KEYS[0], lambda: b"x").source for _ in range(2)] == ["created"] * 2


def test_it_follows_its_neighbours_on_the_node(make: StoreMaker) -> None:
    fill(make(), KEYS[:3])
    with make(read_only=True, url="unix:///no-server") as store, make(url="unix:///no-server") as other:
        assert store.get(KEYS[0]) == payload(KEYS[0])
        other.clear()
        assert store.get(KEYS[0]) is None


def test_an_embedded_server_is_used_but_not_started(make_store: StoreMaker, home: Path, tmp_path: Path) -> None:
    server = EmbeddedServer(str(home / "redis"))
    try:
        with make_store(url=None) as writer:
            writer.get_or_create(KEYS[0], lambda: b"x")
            writer.stats()
        key_file = str(home / "signing.key")
        with make_store(url=None, read_only=True, home=str(home), key_file=key_file) as store:
            assert store.size == 1
            store.ping()
        server.down()
        names = sorted(os.listdir(home / "redis"))
        with make_store(url=None, read_only=True) as store:
            assert store.get(KEYS[0]) == b"x"
            assert store.get(KEYS[1]) is None
            with pytest.raises(StoreUnavailable, match="a read-only store starts none"):
                store.ping()
        assert not server.is_running()
        assert sorted(os.listdir(home / "redis")) == names
    finally:
        server.down()


def test_a_folder_that_cannot_be_written_to_is_all_it_needs(make: StoreMaker, home: Path) -> None:
    fill(make(), KEYS[:3])
    folders = [path for path in [home, *home.rglob("*")] if path.is_dir()]
    for folder in folders:
        folder.chmod(0o500)
    try:
        with make(read_only=True, url="unix:///no-server") as store:
            assert store.get_many(KEYS[:3]).count(None) == 0
    finally:
        for folder in folders:
            folder.chmod(0o700)


@pytest.fixture
def connection(url: str) -> Iterator[ReadOnlyConnection]:
    """Return a connection that only reads."""
    made = ReadOnlyConnection(url, url, 0.5, CircuitBreaker())
    yield made
    made.close()


def test_its_connection_refuses_every_command_but_reads(
    connection: ReadOnlyConnection, url: str, namespace: str, look: Callable[[], object]
) -> None:
    tier = ReadOnlyTier(connection, Schema(namespace, "of a test"), Terms(1.0, 1.0), (10, 0))
    before = look()
    attempts: list[Callable[[], Any]] = [
        lambda: connection.command(unused, "SET", "a", "b"),
        lambda: connection.batch(unused, [("PING",), ("DEL", "a")]),
        lambda: connection.values(("HINCRBY", "a", "b", "1"), []),
        lambda: tier.tidy(),
        lambda: tier.leases.acquire("a" * 64, "nonce", "owner", None),
        lambda: tier.leases.renew("a" * 64, "nonce"),
        lambda: tier.leases.fail("a" * 64, "nonce", 1, None),
        lambda: tier.leases.publish("a" * 64, "nonce", 1, 0, b"blob"),
    ]
    for attempt in attempts:
        with pytest.raises(StoreReadOnly):
            attempt()
    assert tier.remove("a" * 64) is False
    assert tier.touch(["a" * 64]) == []
    tier.count(Sent("one", 1, {"misses": 1}))
    assert look() == before


def test_a_view_of_the_state_sees_what_changes_and_survives_damage(tmp_path: Path) -> None:
    path = tmp_path / "state"
    view = NodeStateView(str(path))
    try:
        assert view.read() == NodeState()
        assert not path.exists()
        file = NodeStateFile(str(path))
        file.change(lambda state: state._replace(generation=3, capacity=9))
        assert view.read() == NodeState(generation=3, capacity=9)
        assert view.read() is view.read()
        file.close()
        path.write_bytes(b"x" * path.stat().st_size)
        damaged = view.read()
        assert damaged.generation > 1e15
        assert view.read() is damaged
        assert path.read_bytes() == b"x" * path.stat().st_size
    finally:
        view.close()
