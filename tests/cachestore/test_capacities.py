"""Capacities belong to their owners: a process, a node, the namespace. None changes another's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CacheStore, Key

from .conftest import StoreMaker
from .server import RedisServer

KEYS = [Key({"primitive": "test", "n": number}) for number in range(12)]
PAYLOAD = b"x" * 1000

MakeHost = Callable[..., CacheStore]


@pytest.fixture
def host(make_store: StoreMaker, tmp_path: Path, home: Path) -> MakeHost:
    """Return a maker of stores by host: all have one Redis, one namespace and one key."""

    def make(number: int, **more: Any) -> CacheStore:
        with make_store() as first:
            first.keeps_nothing()  # makes the key
        return make_store(**{"home": str(tmp_path / str(number)), "key_file": str(home / "signing.key"), **more})

    return make


def fill(store: CacheStore, keys: list[Key] = KEYS) -> None:
    """Create entries that are not there yet."""
    for key in keys:
        store.get_or_create(key, lambda: PAYLOAD)


@pytest.mark.parametrize(
    "client",
    [
        *({"capacity": 3}, {"capacity": 0}, {"capacity_bytes": 10}, {"memory_bytes": 0}, {"files_capacity": 12}),
        *({"store_capacity": 3, "store_capacity_bytes": 10}, {"read_only": True, "capacity": 3}),
    ],
    ids=str,
)
def test_no_default_of_a_client_evicts_what_others_have_published(
    host: MakeHost, tmp_path: Path, client: dict[str, Any]
) -> None:
    others, small = host(0), host(1, **client)
    fill(others, KEYS[:9])
    others.export(tmp_path / "bundle")
    if not client.get("read_only"):
        # By each way on which a client brings entries to Redis
        fill(small, KEYS[9:11])
        other_home = host(2, url="unix:///none.sock", **client)
        fill(other_home, KEYS[11:])
        other_home.close()
        with host(2, **client) as later:
            later.ping()
            later.stats()
            later.import_(tmp_path / "bundle")
            assert later.get_many(KEYS[11:])[0] is not None
            later.fetch_or_create(KEYS[11], lambda: PAYLOAD)
            later.verify()
    expected = 9 if client.get("read_only") else 12
    fill(small, KEYS[:9])
    assert (small.size, others.size) == (expected, expected)
    assert (small.capacity, others.capacity, others.stats()["evictions"]) == (1024, 1024, 0)
    with host(3) as fresh:
        assert [found and found.source for found in fresh.get_many(KEYS[:expected])] == ["redis"] * expected


def test_a_variable_bounds_its_process_only(host: MakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    others = host(0)
    fill(others)
    monkeypatch.setenv("POOLRT_PRIMITIVE_CACHE_CAPACITY", "3")
    monkeypatch.setenv("POOLRT_PRIMITIVE_CACHE_BYTES", "2500")
    small = host(1)
    fill(small, KEYS[:11])
    small.get_or_create(Key({"primitive": "another"}), lambda: PAYLOAD)
    assert len(small._memory) == 2  # 2500 bytes
    assert (others.size, others.stats()["evictions"], small.capacity) == (13, 0, 1024)


def test_files_have_a_bound_of_their_own(host: MakeHost) -> None:
    store = host(0, files_capacity=4, capacity=2)
    fill(store)
    files = store._components.node.listing(store._components.node.state())
    assert 3 <= len(files) <= 4
    assert (store.size, len(store._memory)) == (12, 2)
    # And never more than the namespace was given
    store.set_capacity(2)
    assert len(store._components.node.listing(store._components.node.state())) <= 2


def test_the_first_node_that_may_sets_the_capacity_and_later_ones_find_it(host: MakeHost) -> None:
    host(0).ping()
    first = host(1, store_capacity=5, store_capacity_bytes=100_000, set_store_capacity=True)
    fill(first)
    assert (first.capacity, first.size, first.stats()["capacity_bytes"]) == (5, 5, 100_000)
    # A later node, with the flag or without, changes nothing
    for more in ({"store_capacity": 2, "set_store_capacity": True}, {"store_capacity": 3}, {"capacity": 1}):
        with host(2, **more) as later:
            assert (later.capacity, later.stats()["capacity_bytes"]) == (5, 100_000)
            fill(later, KEYS[5:8])
            assert later.size == 5
    # The operator does
    host(3).set_capacity(9)
    with host(1, store_capacity=5, set_store_capacity=True) as again:
        fill(again)
        assert (again.capacity, again.size, again.stats()["capacity_bytes"]) == (9, 9, 100_000)


def test_an_operator_who_has_set_bytes_only_leaves_the_entries_to_the_configuration(host: MakeHost) -> None:
    host(0).set_capacity(bytes=50_000)
    with host(1, store_capacity=4, store_capacity_bytes=10, set_store_capacity=True) as store:
        assert (store.capacity, store.stats()["capacity_bytes"]) == (4, 50_000)
        assert (host(0).capacity, host(2).capacity) == (4, 4)


def test_of_nodes_that_start_together_one_sets_the_capacity_for_all(host: MakeHost) -> None:
    stores = [host(number, store_capacity=number, set_store_capacity=True) for number in range(3, 11)]
    together = threading.Barrier(len(stores))

    def start(store: CacheStore) -> int:
        together.wait(30)
        return store.capacity

    with ThreadPoolExecutor(len(stores)) as threads:
        found = set(threads.map(start, stores, timeout=60))
    assert len(found) == 1
    assert {store.capacity for store in stores} == found <= set(range(3, 11))


def test_what_the_operator_has_set_outlives_the_memory_of_redis_and_comes_before_a_configuration(
    own_server: RedisServer, host: MakeHost
) -> None:
    operator = host(0, url=own_server.url)
    operator.set_capacity(7)
    with own_server.client() as client:
        client.flushall()
    with host(1, url=own_server.url, store_capacity=3, set_store_capacity=True) as configured:
        assert configured.capacity == 3  # nobody here knows better yet
        assert operator.capacity == 7
        assert configured.capacity == 7
        fill(configured)
        assert configured.size == 7


def test_without_redis_the_configuration_of_the_node_holds(host: MakeHost) -> None:
    with host(0, url="unix:///none.sock", store_capacity=6, set_store_capacity=True) as store:
        assert store.capacity == 6
    with host(1, url="unix:///none.sock", store_capacity=6) as store:
        assert store.capacity == 1024
