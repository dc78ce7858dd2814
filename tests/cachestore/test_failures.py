"""Creators that die, hang or come late, and a Redis that dies, freezes, forgets or fills up: slower, never wrong."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CacheStore, CreationFailed, Key, StoreUnavailable
from poolrt.cachestore.redis.schema import Schema

from .actor import payload_of
from .actors import Actors, expect
from .conftest import StoreMaker
from .names import write_key
from .server import RedisServer
from .waiting import SOON_S, wait_until

FIELDS = [{"primitive": "test", "n": number} for number in range(20)]
RIGHT = [hashlib.sha256(payload_of(fields, 1000)).hexdigest() for fields in FIELDS]
KEY = Key(FIELDS[0])


@pytest.mark.parametrize("away", [False, True])
def test_a_killed_creator_is_replaced_at_once(
    actors: Actors, options: dict[str, Any], make_store: StoreMaker, away: bool
) -> None:
    own = {**options, "lease_s": 30.0, **({"url": "unix:///no-server"} if away else {})}
    victim = actors.add(own, FIELDS[:1], create_s=60.0, announce=True)
    actors.go(victim)
    assert expect(victim) == "creating"
    waiters = [actors.add(own, FIELDS[:1], create_s=0.05) for _ in range(3)]
    actors.go(*waiters)
    wait_until(lambda: len(actors.log.read_text().splitlines()) == 1)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    said = [one["results"][0] for one in actors.results(*waiters)]
    # The lease of half a minute did not have to run out, and one creation more was needed
    assert [result["sha256"] for result in said] == RIGHT[:1] * 3
    assert max(result["seconds"] for result in said) < SOON_S
    assert sum(actors.creations().values()) == 2
    assert make_store().stats()["creations"] == 1


def test_a_hanging_creator_loses_its_lease_after_the_hard_limit(
    actors: Actors, options: dict[str, Any], make_store: StoreMaker
) -> None:
    own = {**options, "lease_s": 0.4, "creation_limit_s": 0.8}
    victim = actors.add(own, FIELDS[:1], create_s=60.0, announce=True)
    actors.go(victim)
    assert expect(victim) == "creating"
    store = make_store(**{**own, "lease_s": 0.4})
    begin = time.monotonic()
    assert store.fetch_or_create(KEY, lambda: b"mine").source == "created"
    assert time.monotonic() - begin < SOON_S
    assert store.stats()["takeovers"] == 1


def test_a_redis_that_dies_meanwhile_costs_no_result(
    actors: Actors, options: dict[str, Any], own_server: RedisServer, make_store: StoreMaker
) -> None:
    own = {**options, "url": own_server.url}
    make_store(**own).get_or_create(Key({"first": 0}), lambda: b"makes the key file")
    for _ in range(4):
        actors.add(own, FIELDS, create_s=0.05)
    actors.go()
    wait_until(lambda: len(actors.creations()) >= 4)
    own_server.kill()
    wait_until(lambda: len(actors.creations()) >= 10)
    own_server.start()
    said = actors.results()
    assert [[result["sha256"] for result in one["results"]] for one in said] == [RIGHT] * 4
    assert max(result["seconds"] for one in said for result in one["results"]) < SOON_S
    # At most one creation more for the one failure
    assert sum(actors.creations().values()) <= len(FIELDS) + 1
    # And everything that was made comes to the new server, which began with nothing
    last = make_store(**own)

    def published() -> bool:
        for fields in FIELDS:
            last.get(Key(fields))
        return last.stats()["entries"] >= len(FIELDS)

    wait_until(published)


def test_a_flushed_redis_gets_back_what_is_used(own_server: RedisServer, make_store: StoreMaker) -> None:
    store = make_store(url=own_server.url)
    for fields in FIELDS[:5]:
        store.get_or_create(Key(fields), lambda: b"x")
    with own_server.client() as client:
        client.flushall()
    assert store.size == 0
    fresh = make_store(url=own_server.url)
    found = fresh.get_many([Key(fields) for fields in FIELDS[:5]])
    assert [item and item.source for item in found] == ["files"] * 5
    wait_until(lambda: fresh.stats()["entries"] == 5)


def test_a_clear_survives_a_redis_that_forgot_it(own_server: RedisServer, make_store: StoreMaker) -> None:
    store = make_store(url=own_server.url)
    store.get_or_create(KEY, lambda: b"old")
    with own_server.client() as client:
        before = {name: client.dump(name) for name in client.scan_iter()}
        store.clear()
        # Given a Redis that comes back from a copy made before the clear
        client.flushall()
        for name, value in before.items():
            client.restore(name, 0, value)
    assert make_store(url=own_server.url).get(KEY) is None


def test_a_full_redis_drops_old_entries_for_new_ones(own_server: RedisServer, make_store: StoreMaker) -> None:
    with own_server.client() as client:
        client.config_set("maxmemory", "8mb")
    store: CacheStore = make_store(url=own_server.url)
    for fields in FIELDS:
        payload = payload_of(fields, 1_000_000)
        assert store.get_or_create(Key(fields), partial(payload_of, fields, 1_000_000)) == payload
    assert 0 < store.size < len(FIELDS)
    newest = Key(FIELDS[-1]).digest
    assert newest in {entry.digest for entry in store.entries()}


def test_a_store_says_clearly_why_redis_does_not_answer(make_store: StoreMaker, tmp_path: Path) -> None:
    store = make_store(url=f"unix://{tmp_path}/no-server")
    with pytest.raises(StoreUnavailable) as caught:
        store.ping()
    assert caught.value.url == f"unix://{tmp_path}/no-server"
    assert "No such file" in caught.value.reason
    status = store.status()
    assert (status.reachable, status.embedded) == (False, False)
    assert "No such file" in status.reason


def test_a_password_does_not_show_in_messages(make_store: StoreMaker) -> None:
    store = make_store(url="redis://user:hunter2@127.0.0.1:1/0")
    with pytest.raises(StoreUnavailable) as caught:
        store.ping()
    assert "hunter2" not in str(caught.value)
    assert caught.value.url == "redis://user:***@127.0.0.1:1/0"


def test_a_user_with_no_more_than_the_rule_can_do_everything(
    own_server: RedisServer, make_store: StoreMaker, namespace: str
) -> None:
    with own_server.client() as client:
        client.execute_command("ACL", "SETUSER", "poolrt", "on", ">secret", *Schema(namespace).acl_rule.split())
        client.execute_command("ACL", "SETUSER", "default", "off")
        store = make_store(url=own_server.url.replace("unix://", "unix://poolrt:secret@"))
        store.ping()
        store.set_capacity(3)
        for fields in FIELDS[:6]:
            store.get_or_create(Key(fields), lambda: b"x")
        with pytest.raises(CreationFailed):
            store.get_or_create(Key({"n": "bad"}), lambda: bytes(-1))
        assert len(store.entries()) == 3
        assert store.verify().redis_checked == 3
        assert store.remove(Key(FIELDS[5]))
        store.clear()
        stats = store.stats()
        assert (stats["creations"], stats["evictions"], stats["degraded"], stats["entries"]) == (6, 3, 0, 0)


@pytest.mark.parametrize("url", ["http://somewhere", "not a url"])
def test_a_url_of_another_kind_is_a_clear_error_too(make_store: StoreMaker, url: str) -> None:
    store = make_store(url=url)
    with pytest.raises(StoreUnavailable, match="URL"):
        store.ping()
    assert store.get_or_create(KEY, lambda: b"x") == b"x"


def test_a_home_that_cannot_be_used_costs_speed_only(make_store: StoreMaker, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_bytes(b"a file where the folder should be")
    key_file = write_key(tmp_path / "key")
    one, other = (make_store(home=str(blocked), key_file=key_file) for _ in range(2))
    assert one.fetch_or_create(KEY, lambda: b"x").source == "created"
    assert other.fetch_or_create(KEY, lambda: b"x").source == "redis"
    one.clear()
    assert one.get(KEY) is None
