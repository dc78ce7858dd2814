"""Users with different signing keys on one Redis: neither evicts, replaces, clears, sees or waits for the other's."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore, CreationFailed, Key

from .conftest import StoreMaker
from .names import schema_of, write_key
from .server import RedisServer

USERS = ("one", "two")
DAY_MS = 24 * 3600 * 1000

#: Asks for all keys in an order of its own; logs each creation.
WORKER = """
import os, random, sys
from poolrt.cachestore import CacheStore, Key
user, url, namespace, home, key_file, capacity, count, log = sys.argv[1:]
numbers = list(range(int(count)))
random.shuffle(numbers)
def create(number):
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{user} {number}\\n".encode())
    os.close(descriptor)
    return f"{user} {number}".encode() * 50
print("ready", flush=True)
sys.stdin.readline()
with CacheStore.connect(url, namespace=namespace, home=home, key_file=key_file,
        store_capacity=int(capacity), set_store_capacity=True) as store:
    for number in numbers:
        got = store.get_or_create(Key({"n": number}), lambda: create(number))
        assert got == f"{user} {number}".encode() * 50
"""

MakeUser = Callable[..., CacheStore]


@pytest.fixture
def user(make_store: StoreMaker, tmp_path: Path) -> MakeUser:
    """Return a maker of stores by user, on two hosts each: all have one Redis and one namespace."""
    keys = {name: write_key(tmp_path / f"{name}.key") for name in USERS}

    def make(name: str, host: int = 0, **more: object) -> CacheStore:
        return make_store(home=str(tmp_path / f"{name}{host}"), key_file=keys[name], **more)

    return make


def expect_all_there(user: MakeUser, count: int) -> None:
    """Each user has made each entry once, has lost none, and finds its own on another host."""
    for name in USERS:
        with user(name, 9, store_capacity=count, set_store_capacity=True) as store:
            stats = store.stats()
            assert (stats["creations"], stats["entries"]) == (count, count)
            assert {stats[counter] for counter in ("evictions", "forged", "corrupt", "duplicates", "takeovers")} == {0}
            found = store.get_many([Key({"n": number}) for number in range(count)])
            assert [item and item.source for item in found] == ["redis"] * count
            assert [item and item.value for item in found] == [f"{name} {n}".encode() * 50 for n in range(count)]


def test_threads_of_two_users_create_each_entry_once_for_each_and_evict_nothing(user: MakeUser) -> None:
    count = 20
    created: list[tuple[str, int]] = []

    def work(name: str, store: CacheStore) -> None:
        def create(number: int) -> bytes:
            created.append((name, number))
            return f"{name} {number}".encode() * 50

        for number in random.sample(range(count), count):
            got = store.get_or_create(Key({"n": number}), lambda number=number: create(number))  # type: ignore[misc]
            assert got == f"{name} {number}".encode() * 50

    with ThreadPoolExecutor(16) as pool:
        stores = [
            (name, user(name, host, store_capacity=count, set_store_capacity=True)) for name in USERS for host in (0, 1)
        ]
        for call in [pool.submit(work, *each) for each in stores for _ in range(4)]:
            call.result(60)
    for _, store in stores:
        store.close()
    assert sorted(created) == sorted((name, number) for name in USERS for number in range(count))
    expect_all_there(user, count)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sixteen_processes_of_each_user_create_200_entries_once_for_each(user: MakeUser, tmp_path: Path) -> None:
    count, log = 200, tmp_path / "log"
    workers = []
    for number in range(32):
        options = user(USERS[number % 2], number // 2 % 2).options
        words = [USERS[number % 2], options.url, options.namespace, options.home, options.key_file, count, count, log]
        command = [sys.executable, "-c", WORKER, *map(str, words)]
        workers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate(timeout=240)
        assert worker.returncode == 0
    assert sorted(log.read_text().splitlines()) == sorted(f"{name} {n}" for name in USERS for n in range(count))
    expect_all_there(user, count)


def test_a_user_does_not_wait_for_another_users_creator(user: MakeUser) -> None:
    begun, end = threading.Event(), threading.Event()

    def create() -> bytes:
        begun.set()
        assert end.wait(30)
        return b"of one"

    key = Key({"n": 1})
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(user("one").get_or_create, key, create)
        try:
            assert begun.wait(30)
            other = pool.submit(user("two").get_or_create, key, lambda: b"of two")
            assert other.result(10) == b"of two"
            assert not slow.done()
        finally:
            end.set()
        assert slow.result(30) == b"of one"


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.clear(),
        lambda store: store.set_capacity(0),
        lambda store: store.set_capacity(1),
        lambda store: store.remove(Key({"n": 1})),
        lambda store: store.verify(),
    ],
    ids=["clear", "off", "smaller", "remove", "verify"],
)
def test_a_users_decisions_hold_for_the_users_own_entries(
    user: MakeUser, change: Callable[[CacheStore], object]
) -> None:
    keys = [Key({"n": number}) for number in range(3)]
    for name in USERS:
        for key in keys:
            user(name).get_or_create(key, name.encode)
    change(user("one"))
    with user("two", 9) as store:
        assert [found and tuple(found) for found in store.get_many(keys)] == [(b"two", "redis")] * 3
        assert (store.size, store.capacity, store.stats()["forged"]) == (3, 1024, 0)


def test_rights_for_one_key_exclude_every_other(user: MakeUser, own_server: RedisServer) -> None:
    rights = schema_of(user("one")).acl_rule.split()
    key = Key({"n": 1})
    with own_server.client() as client:
        client.execute_command("ACL", "SETUSER", "one", "on", ">secret", *rights)
        url = own_server.url.replace("unix://", "unix://one:secret@")
        with user("one", url=url) as store:
            assert store.get_or_create(key, lambda: b"of one") == b"of one"
            assert store.stats()["degraded"] == 0
        with user("two", url=url) as store:
            assert store.get_or_create(key, lambda: b"of two") == b"of two"
            assert store.stats()["degraded"] > 0
            assert client.keys(f"{schema_of(store).prefix}*") == []
        with user("one", 9, url=url) as store:
            assert store.get(key) == b"of one"


def test_all_names_of_a_key_expire_unless_they_are_used(user: MakeUser, redis_server: RedisServer) -> None:
    # Given a store that has made every kind of name in Redis
    keys = [Key({"n": number}) for number in range(6)]
    with user("one") as store:
        schema = schema_of(store)
        for key in keys:
            store.get_or_create(key, lambda: b"x" * 100)
        with pytest.raises(CreationFailed):
            store.get_or_create(Key({"n": "bad"}), lambda: bytes(-1))
        assert store.get(Key({"n": "none"})) is None
        store.remove(keys[0])
        store.remove(Key({"n": "none"}))
        store.set_capacity(4)
        store.stats()
    with redis_server.client() as client:
        # Then each name has a term of at most 30 days
        names = list(client.scan_iter(f"{schema.prefix}:*"))
        assert {schema.order, schema.sizes, schema.meta, schema.counters} < {name.decode() for name in names}
        assert all(0 < client.pttl(name) <= 30 * DAY_MS for name in names)
        assert client.pttl(schema.value(keys[5].digest)) > 29 * DAY_MS
        # When an entry is used that would soon expire, then it has the whole term again
        for name in names:
            client.pexpire(name, 60_000)
        with user("one", 9) as store:
            assert store.get(keys[5]) == b"x" * 100
            store.stats()
        used = [schema.value(keys[5].digest), schema.order, schema.sizes, schema.meta, schema.counters]
        assert all(client.pttl(name) > 29 * DAY_MS for name in used)
        assert client.pttl(schema.value(keys[4].digest)) <= 60_000
        # When one expires, then the books follow
        client.delete(schema.value(keys[4].digest))
        with user("one", 9) as store:
            assert store.get(keys[4]) is None
