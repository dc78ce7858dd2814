"""Damaged and forged entries, in files and in Redis: never served, counted, removed, created again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CacheStore, Key
from poolrt.cachestore.entry import EntryCodec, EntryMeta
from poolrt.cachestore.signing import SigningKey

from .conftest import StoreMaker
from .names import schema_of, write_key
from .server import RedisServer

KEY = Key({"primitive": "test", "n": 1})
META = EntryMeta(1, 0.0, 0.0, "", "")

Tamper = Callable[[bytes], bytes]


def flipped(position: int) -> Tamper:
    """Return what flips one bit of the byte at a position."""

    def tamper(blob: bytes) -> bytes:
        bad = bytearray(blob)
        bad[position] ^= 0x10
        return bytes(bad)

    return tamper


def forged(namespace: str) -> bytes:
    """Return an entry that is signed with another key."""
    return EntryCodec(SigningKey(b"someone else's key"), namespace).pack(KEY.canonical, b"evil", META)


def entry_file(home: Path) -> Path:
    """Return the file of the only entry."""
    (path,) = home.glob("*/entries/*/*")
    return path


#: A byte of the magic, the key id, the lengths, the prefix's check sum, the header, the key, the payload and the tag.
REGIONS = [0, 8, 16, 31, 36, 60, -40, -1]


@pytest.mark.parametrize("position", REGIONS)
def test_a_flipped_bit_in_a_file_is_noticed(make_store: StoreMaker, home: Path, position: int) -> None:
    make_store(url="unix:///no-server").get_or_create(KEY, lambda: b"x" * 100)
    path = entry_file(home)
    path.write_bytes(flipped(position)(path.read_bytes()))
    store = make_store(url="unix:///no-server")
    outcome = store.fetch_or_create(KEY, lambda: b"x" * 100)
    assert (outcome.source, outcome.value) == ("created", b"x" * 100)
    stats = store.stats()
    assert (stats["corrupt"], stats["forged"], stats["misses"], stats["creations"]) == (1, 0, 2, 2)
    assert make_store(url="unix:///no-server").get(KEY) == b"x" * 100


@pytest.mark.parametrize("position", REGIONS)
def test_a_flipped_bit_in_redis_is_noticed(
    make_store: StoreMaker, redis_server: RedisServer, tmp_path: Path, home: Path, position: int
) -> None:
    store = make_store()
    store.get_or_create(KEY, lambda: b"x" * 100)
    name = schema_of(store).value(KEY.digest)
    key_file = str(home / "signing.key")
    with redis_server.client() as client:
        client.set(name, flipped(position)(client.get(name)))
        store = make_store(home=str(tmp_path / "other"), key_file=key_file)
        assert store.fetch_or_create(KEY, lambda: b"x" * 100).source == "created"
        assert client.strlen(name) > 0
    stats = store.stats()
    assert (stats["corrupt"], stats["forged"], stats["misses"], stats["creations"]) == (1, 0, 2, 2)
    assert stats["entries"] == 1
    assert make_store(home=str(tmp_path / "third"), key_file=key_file).fetch_or_create(KEY, bytes).source == "redis"


def test_a_forged_file_is_refused(make_store: StoreMaker, home: Path, namespace: str) -> None:
    make_store(url="unix:///no-server").get_or_create(KEY, lambda: b"good")
    entry_file(home).write_bytes(forged(namespace))
    store = make_store(url="unix:///no-server")
    assert store.get(KEY) is None
    assert not list(home.glob("*/entries/*/*"))
    assert store.get_or_create(KEY, lambda: b"good") == b"good"
    stats = store.stats()
    assert (stats["corrupt"], stats["forged"], stats["creations"]) == (0, 1, 2)


def test_a_forged_value_in_redis_is_refused(make_store: StoreMaker, redis_server: RedisServer, namespace: str) -> None:
    store = make_store()
    store.ping()
    name = schema_of(store).value(KEY.digest)
    with redis_server.client() as client:
        client.set(name, forged(namespace))
        assert store.get(KEY) is None
        assert client.get(name) is None
        client.set(name, forged(namespace))
        assert store.fetch_or_create(KEY, lambda: b"good").source == "created"
    stats = store.stats()
    assert (stats["corrupt"], stats["forged"], stats["misses"], stats["creations"]) == (0, 2, 2, 1)
    assert stats["degraded"] == 0


def test_a_genuine_entry_moved_to_another_key_is_refused(make_store: StoreMaker, redis_server: RedisServer) -> None:
    store = make_store()
    store.get_or_create(KEY, lambda: b"of KEY")
    other = Key({"n": 2})
    schema = schema_of(store)
    with redis_server.client() as client:
        client.set(schema.value(other.digest), client.get(schema.value(KEY.digest)))
    assert store.get_or_create(other, lambda: b"of other") == b"of other"
    assert store.stats()["corrupt"] == 1


class CollidingKey(Key):
    """A key that pretends to have the digest of KEY."""

    __slots__ = ()

    @property
    def digest(self) -> str:
        """The digest of KEY."""
        return KEY.digest


@pytest.mark.parametrize("away", [False, True])
def test_two_keys_with_one_digest_never_get_each_others_payload(make_store: StoreMaker, away: bool) -> None:
    options: dict[str, Any] = {"url": "unix:///no-server"} if away else {}
    colliding = CollidingKey({"other": 1})
    for _ in range(2):
        assert make_store(**options).get_or_create(KEY, lambda: b"of KEY") == b"of KEY"
        # The codec names entries by their key's true digest, so this one is refused on each later look-up.
        assert make_store(**options).get_or_create(colliding, lambda: b"of the other") == b"of the other"


def test_a_bad_entry_in_files_is_replaced_from_redis(make_store: StoreMaker, home: Path) -> None:
    make_store().get_or_create(KEY, lambda: b"good")
    path = entry_file(home)
    path.write_bytes(b"rubbish")
    store = make_store()
    assert store.fetch_or_create(KEY, lambda: b"again").source == "redis"
    store.close()
    assert make_store().fetch_or_create(KEY, lambda: b"again").source == "files"
    assert store.stats()["corrupt"] == 1


def test_entries_signed_with_a_former_key_are_replaced_in_files_and_ignored_in_redis(
    make_store: StoreMaker, redis_server: RedisServer, tmp_path: Path
) -> None:
    stores = [make_store(key_file=write_key(tmp_path / f"key{number}")) for number in (1, 2)]
    for store in stores:
        assert store.fetch_or_create(KEY, lambda: b"x").source == "created"
    assert stores[1].stats()["forged"] == 1
    with redis_server.client() as client:
        assert client.exists(*(schema_of(store).value(KEY.digest) for store in stores)) == 2


@pytest.mark.parametrize("kind", ["z", "s", "m", "c", "l"])
@pytest.mark.parametrize("garbage", ["another type", "no numbers"])
def test_garbage_in_redis_costs_no_result(
    make_store: StoreMaker, own_server: RedisServer, kind: str, garbage: str
) -> None:
    store = make_store(url=own_server.url)
    store.get_or_create(KEY, lambda: b"of KEY")
    name = f"{schema_of(store).prefix}:{kind}" + (f":{Key({'n': 2}).digest}" if kind == "l" else "")
    fields = ["generation", "revision", "capacity", "bytes", "clock", "misses", "nonce", "fence", "expires", KEY.digest]
    with own_server.client() as client:
        client.delete(name)
        if garbage == "another type":
            client.rpush(name, "garbage")
        elif kind == "z":
            client.zadd(name, {"garbage": 1.5, b"\xff\xfe": 2.0})
        else:
            client.hset(name, mapping=dict.fromkeys(fields, "garbage"))
    fresh = make_store(url=own_server.url)
    assert fresh.get_or_create(Key({"n": 2}), lambda: b"of the other") == b"of the other"
    assert fresh.get(KEY) == b"of KEY"
    assert fresh.get(Key({"n": 3})) is None
    assert fresh.stats()["entries"] >= 0
    assert fresh.entries() is not None
    assert fresh.verify() is not None
    fresh.remove(KEY)
    fresh.clear()
    fresh.set_capacity(10)
    if kind == "m" and garbage == "no numbers":
        # The next change of generation or capacity repairs them
        last = make_store(url=own_server.url)
        assert (last.capacity, last.status().reachable) == (10, True)


def test_a_name_in_redis_that_leads_out_of_the_folder_harms_no_file(
    make_store: StoreMaker, redis_server: RedisServer, tmp_path: Path
) -> None:
    store = make_store()
    store.get_or_create(KEY, lambda: b"x")
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    with redis_server.client() as client:
        for name in (str(victim), f"../../../../{victim.name}", "/" * 64):
            client.zadd(schema_of(store).order, {name: 1})
    assert len(store.entries()) == 1
    store.verify()
    store.set_capacity(1)
    store.get_or_create(Key({"n": 2}), lambda: b"x")
    store.clear()
    assert victim.read_bytes() == b"precious"


def test_verify_finds_and_removes_the_bad_ones(
    make_store: StoreMaker, redis_server: RedisServer, namespace: str, home: Path
) -> None:
    store: CacheStore = make_store()
    keys = [Key({"n": number}) for number in range(6)]
    for key in keys:
        store.get_or_create(key, lambda: b"payload")
    folder = next(home.glob("*/entries/*"))
    (folder / keys[0].digest).write_bytes(forged(namespace))
    (folder / keys[1].digest).write_bytes(b"rubbish")
    prefix = schema_of(store).value("")
    with redis_server.client() as client:
        client.set(prefix + keys[2].digest, b"rubbish")
        client.delete(prefix + keys[3].digest)
    report = store.verify()
    assert (report.files_checked, report.redis_checked) == (6, 6)
    assert {(problem.digest, problem.tier) for problem in report.problems} == {
        (keys[0].digest, "files"),
        (keys[1].digest, "files"),
        (keys[2].digest, "redis"),
        (keys[3].digest, "redis"),
    }
    assert (store.stats()["corrupt"], store.stats()["forged"], store.size) == (2, 1, 4)
    assert store.verify().problems == ()
