"""What the node owes to a Redis that was away, or has lost its memory: paid in full, in order, and within bounds."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CacheStore, Key

from ..drills.proxy import Proxy
from .conftest import StoreMaker
from .names import schema_of
from .server import RedisServer
from .waiting import SOON_S, wait_until

KEYS = [Key({"primitive": "test", "n": number}) for number in range(40)]


def fill(store: CacheStore, keys: list[Key]) -> None:
    """Make entries of 1000 bytes."""
    for key in keys:
        store.get_or_create(key, lambda: b"x" * 1000)


def digests(store: CacheStore) -> list[str]:
    """Return what Redis lists, least recently used first."""
    tier = store._components.limits.tier()
    assert tier is not None
    return [item.digest for item in tier.listing()]


def test_a_flushed_redis_gets_everything_back_in_the_order_of_use(
    own_server: RedisServer, make_store: StoreMaker
) -> None:
    store = make_store(url=own_server.url)
    fill(store, KEYS)
    store.stats()
    with own_server.client() as client:
        client.flushall()
    # When any process does anything, though it uses none of them
    other = make_store(url=own_server.url)
    wait_until(lambda: other.stats()["entries"] == len(KEYS))
    assert digests(other) == [key.digest for key in KEYS]


def test_a_redis_that_comes_back_empty_gets_everything_back(own_server: RedisServer, make_store: StoreMaker) -> None:
    store = make_store(url=own_server.url)
    fill(store, KEYS)
    store.close()
    own_server.kill()
    own_server.start()
    later = make_store(url=own_server.url)
    wait_until(lambda: later.stats()["entries"] == len(KEYS))


def test_a_redis_that_comes_back_without_its_last_entries_gets_them_back(
    own_server: RedisServer, make_store: StoreMaker
) -> None:
    store = make_store(url=own_server.url)
    fill(store, KEYS[:5])
    store.stats()
    with own_server.client() as client:
        client.save()
        fill(store, KEYS[5:])
        # Given a replica that is promoted with all but the last writes, in the same life
        client.shutdown(nosave=True)
    own_server.kill()
    own_server.start()
    wait_until(lambda: store.stats()["entries"] == len(KEYS))


def test_an_entry_that_is_lost_at_the_end_of_its_creator_comes_back(
    own_server: RedisServer, make_store: StoreMaker
) -> None:
    store = make_store(url=own_server.url)
    fill(store, KEYS[:2])
    # Given an entry that was lost, and all others of the node compared, before it stood in the node's files
    remove_from_books(own_server, store, KEYS[1])
    store.close()
    later = make_store(url=own_server.url)
    wait_until(lambda: later.stats()["entries"] == 2)


def remove_from_books(server: RedisServer, store: CacheStore, key: Key) -> None:
    """Make Redis lose the bookkeeping of an entry, but not its value."""
    prefix = schema_of(store).prefix
    with server.client() as client:
        client.zrem(f"{prefix}:z", key.digest)
        client.hincrby(f"{prefix}:s", "bytes", -int(client.hget(f"{prefix}:s", key.digest)))
        client.hdel(f"{prefix}:s", key.digest)
        client.hincrby(f"{prefix}:m", "entries", -1)


def test_what_redis_has_dropped_for_capacity_does_not_come_back_in_the_place_of_newer_entries(
    own_server: RedisServer, make_store: StoreMaker, options: dict[str, Any], tmp_path: Path
) -> None:
    here = make_store(url=own_server.url)
    fill(here, KEYS[:10])
    here.set_capacity(10)
    there = make_store(
        url=own_server.url, home=str(tmp_path / "there"), key_file=str(Path(options["home"]) / "signing.key")
    )
    fill(there, KEYS[10:20])
    newest = digests(there)
    assert newest == [key.digest for key in KEYS[10:20]]
    # Given a new life that has lost nothing
    with own_server.client() as client:
        client.hset(schema_of(here).meta, "run_id", "another")
    for _ in range(3):
        make_store(url=own_server.url).stats()
    assert digests(there) == newest


def test_a_node_that_meets_redis_for_the_first_time_publishes_only_what_was_never_published(
    own_server: RedisServer, make_store: StoreMaker, options: dict[str, Any]
) -> None:
    alone = make_store(url="unix:///no-server")
    fill(alone, KEYS[:6])
    alone.close()
    for key in KEYS[:3]:
        os.unlink(Path(options["home"]) / alone.options.namespace / "unpublished" / key.digest)
    store = make_store(url=own_server.url)
    wait_until(lambda: store.stats()["entries"] == 3)
    assert digests(store) == [key.digest for key in KEYS[3:6]]


def test_a_key_that_two_nodes_have_created_without_redis_has_two_creations(
    own_server: RedisServer, make_store: StoreMaker, options: dict[str, Any], tmp_path: Path
) -> None:
    homes: list[dict[str, Any]] = [
        {},
        {"home": str(tmp_path / "t"), "key_file": str(Path(options["home"]) / "signing.key")},
    ]
    for home in homes:
        alone = make_store(url="unix:///no-server", **home)
        fill(alone, KEYS[:1])
        assert [entry.creations for entry in alone.entries()] == [None]
    here, there = (make_store(url=own_server.url, **home) for home in homes)
    here.stats()
    assert [entry.creations for entry in here.entries()] == [1]
    there.stats()
    assert [entry.creations for entry in here.entries()] == [2]
    (explanation,) = there.explain(KEYS[0])
    assert explanation.stored is not None
    assert explanation.stored.creations == 2


def test_a_late_entry_is_published_under_the_lease_of_its_creator_and_wakes_those_who_wait(
    own_server: RedisServer, make_store: StoreMaker, options: dict[str, Any], tmp_path: Path
) -> None:
    here = make_store(url=own_server.url, lease_s=30.0)
    there = make_store(
        url=own_server.url, lease_s=30.0, home=str(tmp_path / "t"), key_file=str(Path(options["home"]) / "signing.key")
    )
    fill(there, KEYS[1:2])

    def create() -> bytes:
        own_server.freeze()
        return b"made while Redis was frozen"

    assert here.get_or_create(KEYS[0], create) == b"made while Redis was frozen"
    here.close()
    own_server.thaw()
    begin = time.monotonic()
    wait_until(lambda: make_store(url=own_server.url).stats()["entries"] == 2)
    # The creator's lease of half a minute is over
    assert there.fetch_or_create(KEYS[0], lambda: b"mine").source == "redis"
    assert time.monotonic() - begin < SOON_S


def test_a_lease_that_ran_out_does_not_keep_a_late_entry_away(own_server: RedisServer, make_store: StoreMaker) -> None:
    store = make_store(url=own_server.url, lease_s=0.3)
    store.ping()
    tier = store._components.limits.tier()
    assert tier is not None
    tier.leases.acquire(KEYS[0].digest, "somebody", "elsewhere - - - -", None)
    alone = make_store(url="unix:///no-server")
    fill(alone, KEYS[:1])
    wait_until(lambda: store.stats()["entries"] == 1)
    assert store.stats()["late"] == 1


def test_a_full_redis_is_not_asked_to_make_room_for_late_entries(
    own_server: RedisServer, make_store: StoreMaker
) -> None:
    store = make_store(url=own_server.url)
    fill(store, KEYS[:20])
    store.stats()
    alone = make_store(url="unix:///no-server")
    fill(alone, KEYS[20:])
    with own_server.client() as client:
        client.config_set("maxmemory", 1)
        for _ in range(5):
            store.get(KEYS[0])
            store.stats()
        assert set(digests(store)) == {key.digest for key in KEYS[:20]}
        client.config_set("maxmemory", 0)
    later = make_store(url=own_server.url)
    wait_until(lambda: later.stats()["entries"] == len(KEYS))


def test_publishing_takes_a_bounded_share_of_a_call(own_server: RedisServer, make_store: StoreMaker) -> None:
    # Given a node that owes six entries, and a link that takes longer for one than a call may spend
    owed = [Key({"large": number}) for number in range(6)]
    alone = make_store(url="unix:///no-server")
    for key in owed:
        alone.get_or_create(key, lambda: b"x" * 300_000)
    with Proxy(own_server.url.removeprefix("unix://"), bytes_per_s=3e6) as link, own_server.client() as client:
        store = make_store(url=link.url, io_timeout_s=5.0)
        paid = []
        # When a process calls once for each of them
        for _ in owed:
            store.stats()
            paid.append(client.zcard(schema_of(store).order))
        store.close()
    # Then every call has paid one, and left the rest to the next
    assert paid == [1, 2, 3, 4, 5, 6]


def test_a_distant_redis_gets_many_entries_in_one_round_trip(own_server: RedisServer, make_store: StoreMaker) -> None:
    # Given a node that owes many small entries, and a round trip that takes most of a call's share
    owed = [Key({"small": number}) for number in range(60)]
    fill(make_store(url="unix:///no-server"), owed)
    with Proxy(own_server.url.removeprefix("unix://"), delay_s=0.02) as link:
        store = make_store(url=link.url)
        # When a process calls until all are paid
        calls = 0
        while store.stats()["entries"] < len(owed):
            calls += 1
            assert calls < 15
        stats = store.stats()
        store.close()
    # Then each was published once
    assert (stats["late"], stats["duplicates"]) == (len(owed), 0)


@pytest.mark.parametrize("ends", [False, True])
def test_counts_that_a_frozen_redis_has_heard_and_not_answered_are_added_once(
    own_server: RedisServer, make_store: StoreMaker, ends: bool
) -> None:
    store = make_store(url=own_server.url)
    fill(store, KEYS[:1])
    store.stats()
    tier = store._components.limits.tier()
    assert tier is not None
    own_server.freeze()
    store._components.tally.add("waits", 7)
    # Redis hears this, says nothing, and does it when it is thawed
    store._components.flusher.flush(tier)
    assert store.stats()["waits"] == 7
    if ends:
        store.close()
        assert make_store(url="unix:///no-server").stats()["waits"] == 7
    own_server.thaw()
    other = make_store(url=own_server.url) if ends else store
    wait_until(lambda: other.stats()["waits"] != 0)
    for _ in range(3):
        assert other.stats()["waits"] == 7
