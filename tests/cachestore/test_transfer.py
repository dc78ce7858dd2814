"""Export and import between stores: entries that come over, those that stay, and bundles that change nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import BundleCorrupt, BundleForged, CacheStore, Key, KeyFileRefused, StoreUnavailable
from poolrt.cachestore.bundle import open_bundle
from poolrt.cachestore.redis.tier import RedisTier
from poolrt.cachestore.signing import load_key

from .conftest import StoreMaker
from .server import RedisServer
from .waiting import wait_until

KEYS = [Key({"primitive": "test", "n": number}) for number in range(8)]
Elsewhere = Callable[..., CacheStore]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a bundle goes."""
    return tmp_path / "some.bundle"


@pytest.fixture
def elsewhere(make_store: StoreMaker, own_server: RedisServer, tmp_path: Path, home: Path) -> Elsewhere:
    """Return a maker of stores on another host: a home and a Redis of their own, the same key."""

    def make(**more: Any) -> CacheStore:
        options = {"home": str(tmp_path / "elsewhere"), "url": own_server.url, "key_file": str(home / "signing.key")}
        return make_store(**{**options, **more})

    return make


def fill(store: CacheStore, keys: list[Key] = KEYS, size: int = 1000) -> None:
    """Create an entry under each key, the last one last."""
    for key in keys:
        store.get_or_create(key, lambda key=key: payload(key, size))  # type: ignore[misc]


def payload(key: Key, size: int = 1000) -> bytes:
    """Return the payload of a key."""
    return hashlib.sha256(key.canonical).digest() * (size // 32)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return every file in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def never() -> bytes:
    """Fail instead of creating."""
    raise AssertionError("an imported entry was created")


def test_what_one_host_exports_another_need_not_create(
    make_store: StoreMaker, elsewhere: Elsewhere, path: Path
) -> None:
    fill(make_store())
    report = make_store().export(path)
    assert (report.entries, report.skipped, report.redis) == (8, 0, True)
    assert report.bytes < path.stat().st_size
    result = elsewhere().import_(path)
    assert (
        result.entries,
        result.imported,
        result.bytes,
        result.present,
        result.no_room,
        result.busy,
        result.redis,
    ) == (*(8, 8, report.bytes, 0, 0, 0, True),)
    for key in KEYS:
        assert elsewhere().get_or_create(key, never) == payload(key)
    # and so for a third host on the same Redis
    third = elsewhere(home=str(path.parent / "third"))
    assert [third.fetch_or_create(key, never).source for key in KEYS] == ["redis"] * 8
    assert third.stats()["creations"] == 0


def test_an_import_without_redis_goes_to_files_and_reaches_redis_later(
    make_store: StoreMaker, elsewhere: Elsewhere, path: Path
) -> None:
    fill(make_store())
    make_store().export(path)
    result = elsewhere(url="unix:///no-server").import_(path)
    assert (result.imported, result.redis) == (8, False)
    assert elsewhere(url="unix:///no-server").get_or_create(KEYS[0], never) == payload(KEYS[0])
    with elsewhere() as connected:
        wait_until(lambda: connected.stats()["entries"] == 8)


def test_an_import_for_this_node_only_asks_no_redis_and_publishes_what_is_used(
    make_store: StoreMaker, elsewhere: Elsewhere, path: Path
) -> None:
    fill(make_store())
    make_store().export(path)
    result = elsewhere().import_(path, node_only=True)
    assert (result.imported, result.redis) == (8, False)
    assert elsewhere(home=str(path.parent / "third")).size == 0
    with elsewhere() as user:
        assert user.get_or_create(KEYS[3], never) == payload(KEYS[3])
        user.stats()
        assert user.size == 1


def test_files_alone_can_be_exported(make_store: StoreMaker, elsewhere: Elsewhere, path: Path) -> None:
    away = {"url": "unix:///no-server"}
    fill(make_store(**away))
    report = make_store(**away).export(path)
    assert (report.entries, report.redis) == (8, False)
    assert elsewhere().import_(path).imported == 8


def test_entries_of_redis_and_of_files_come_into_one_bundle(make_store: StoreMaker, path: Path) -> None:
    fill(make_store(), KEYS[:4])
    fill(make_store(url="unix:///no-server"), KEYS[4:])
    other_home = {"home": str(path.parent / "other"), "key_file": make_store().options.home + "/signing.key"}
    fill(make_store(**other_home), [Key({"n": "elsewhere"})])
    assert make_store().export(path).entries == 9


def test_the_order_of_use_is_kept(make_store: StoreMaker, elsewhere: Elsewhere, path: Path) -> None:
    with make_store() as store:
        fill(store)
    with make_store() as store:
        store.get(KEYS[2])
        store.stats()
    wanted = [entry.digest for entry in make_store().entries()]
    assert wanted[0] == KEYS[2].digest
    make_store().export(path)
    elsewhere().import_(path)
    assert [entry.digest for entry in elsewhere().entries()] == wanted


def test_what_is_there_stays_as_it_is(make_store: StoreMaker, elsewhere: Elsewhere, path: Path) -> None:
    fill(make_store())
    make_store().export(path)
    elsewhere().get_or_create(KEYS[0], lambda: b"their own")
    result = elsewhere().import_(path)
    assert (result.imported, result.present) == (7, 1)
    assert elsewhere().get(KEYS[0]) == b"their own"
    again = elsewhere().import_(path)
    assert (again.imported, again.present, again.bytes) == (0, 8, 0)
    # nor do files on their own give way
    alone = elsewhere(url="unix:///no-server").import_(path)
    assert (alone.imported, alone.present) == (0, 8)
    assert elsewhere().get(KEYS[0]) == b"their own"


@pytest.mark.parametrize("away", [False, True])
def test_an_import_keeps_to_the_capacity_and_takes_the_last_used(
    make_store: StoreMaker, elsewhere: Elsewhere, path: Path, away: bool
) -> None:
    fill(make_store())
    make_store().export(path)
    options = {"url": "unix:///no-server"} if away else {}
    mine = Key({"mine": 1})
    with elsewhere(**options) as store:
        store.set_capacity(4)
        store.get_or_create(mine, lambda: b"mine")
        result = store.import_(path)
        assert (result.imported, result.no_room, store.size) == (3, 5, 4)
        assert {entry.digest for entry in store.entries()} == {mine.digest, *(key.digest for key in KEYS[5:])}
        assert store.stats()["evictions"] == 0


@pytest.mark.parametrize("away", [False, True])
def test_an_import_keeps_to_the_capacity_in_bytes(
    make_store: StoreMaker, elsewhere: Elsewhere, path: Path, away: bool
) -> None:
    fill(make_store(), KEYS[:2], size=9600)
    fill(make_store(), KEYS[2:])
    make_store().export(path)
    with elsewhere(**({"url": "unix:///no-server"} if away else {})) as store:
        store.set_capacity(bytes=15_000)
        result = store.import_(path)
        # All six small ones fit, neither of the large ones with them.
        assert (result.imported, result.no_room) == (6, 2)
        assert store.stats()["bytes"] == result.bytes <= 15_000


def test_nothing_comes_into_a_store_that_is_off(make_store: StoreMaker, elsewhere: Elsewhere, path: Path) -> None:
    fill(make_store())
    make_store().export(path)
    with elsewhere() as store:
        store.set_capacity(0)
        result = store.import_(path)
        assert (result.imported, result.no_room, store.size) == (0, 8, 0)
        store.set_capacity(8)
        assert store.import_(path).imported == 8


def test_an_entry_that_is_just_being_created_is_left_to_its_creator(
    make_store: StoreMaker, elsewhere: Elsewhere, path: Path
) -> None:
    fill(make_store())
    make_store().export(path)
    reports = []

    def create() -> bytes:
        reports.append(elsewhere(home=str(path.parent / "third")).import_(path))
        return b"their own"

    elsewhere().get_or_create(KEYS[0], create)
    assert [(result.imported, result.busy) for result in reports] == [(7, 1)]
    assert elsewhere().get(KEYS[0]) == b"their own"


def test_a_bundle_comes_into_another_namespace_signed_again(
    make_store: StoreMaker, elsewhere: Elsewhere, namespace: str, path: Path
) -> None:
    fill(make_store())
    make_store().export(path)
    before = make_store().entries()
    result = elsewhere(namespace="another").import_(path)
    assert (result.namespace, result.imported) == (namespace, 8)
    other = elsewhere(namespace="another", home=str(path.parent / "third"))
    assert [other.fetch_or_create(key, never).source for key in KEYS] == ["redis"] * 8
    assert other.verify().problems == ()
    assert elsewhere().get(KEYS[0]) is None
    for old, new in zip(before, other.entries(), strict=True):
        # The entry still has its creator, its time and its duration.
        assert (new.digest, new.creator, new.seconds, new.bytes) == (old.digest, old.creator, old.seconds, old.bytes)


def test_what_is_not_sound_is_left_out(make_store: StoreMaker, home: Path, elsewhere: Elsewhere, path: Path) -> None:
    away = {"url": "unix:///no-server"}
    fill(make_store(**away))
    (file,) = home.glob(f"*/entries/*/{KEYS[0].digest}")
    file.write_bytes(file.read_bytes()[:-1])
    report = make_store(**away).export(path)
    assert (report.entries, report.skipped) == (7, 1)
    assert elsewhere().import_(path).imported == 7
    # and where Redis has a sound one, that is taken
    fill(make_store())
    assert make_store().export(path).entries == 8


def test_progress_is_reported_for_each_entry(make_store: StoreMaker, elsewhere: Elsewhere, path: Path) -> None:
    fill(make_store())
    for step in (make_store().export, elsewhere().import_):
        result: list[tuple[int, int]] = []
        step(path, progress=lambda done, total, result=result: result.append((done, total)))  # type: ignore[misc]
        assert result == [(number, 8) for number in range(1, 9)]


@pytest.fixture
def untouched(elsewhere: Elsewhere, own_server: RedisServer, tmp_path: Path) -> Callable[[], object]:
    """Return a function that returns all data of another host, in files and in Redis."""
    with elsewhere() as store:
        store.get_or_create(Key({"n": "mine"}), lambda: b"mine")

    def look() -> object:
        with own_server.client() as client:
            values = {name: client.dump(name) for name in client.keys("*") if not name.endswith(b":c")}
        return snapshot(tmp_path / "elsewhere"), values

    return look


@pytest.mark.parametrize("node_only", [False, True])
def test_a_bundle_of_another_key_is_refused_and_nothing_changes(
    make_store: StoreMaker,
    elsewhere: Elsewhere,
    path: Path,
    tmp_path: Path,
    untouched: Callable[[], object],
    node_only: bool,
) -> None:
    fill(make_store(key_file=str(tmp_path / "strangers.key")))
    make_store(key_file=str(tmp_path / "strangers.key")).export(path)
    before = untouched()
    with pytest.raises(BundleForged, match="signed with another key") as caught:
        elsewhere().import_(path, node_only=node_only)
    assert caught.value.key_id == load_key(str(tmp_path / "strangers.key"), make=False).id.hex()
    assert untouched() == before


@pytest.mark.parametrize("fault", ["cut short", "a bit", "two exchanged", "an entry twice", "one left out", "more"])
def test_a_bundle_that_is_not_as_it_was_written_is_refused_and_nothing_changes(
    make_store: StoreMaker, elsewhere: Elsewhere, path: Path, untouched: Callable[[], object], fault: str, home: Path
) -> None:
    fill(make_store())
    make_store().export(path)
    data = path.read_bytes()
    with open_bundle(str(path), load_key(str(home / "signing.key"), make=False)) as bundle:
        first, second = ((entry.offset - 41, entry.offset + entry.bytes) for entry in bundle.entries[:2])
    one, two = data[slice(*first)], data[slice(*second)]
    changed = {
        "cut short": data[:-33],
        "a bit": data[: first[0] + 100] + bytes([data[first[0] + 100] ^ 4]) + data[first[0] + 101 :],
        "two exchanged": data.replace(one + two, two + one),
        "an entry twice": data.replace(one, one + one),
        "one left out": data.replace(one, b""),
        "more": data + one,
    }[fault]
    assert changed != data
    path.write_bytes(changed)
    before = untouched()
    with pytest.raises(BundleCorrupt, match="nothing was imported"):
        elsewhere().import_(path)
    assert untouched() == before


def test_an_import_makes_no_key(make_store: StoreMaker, elsewhere: Elsewhere, path: Path, tmp_path: Path) -> None:
    fill(make_store())
    make_store().export(path)
    with pytest.raises(KeyFileRefused, match="there is no such file"):
        elsewhere(key_file=None).import_(path)
    assert not (tmp_path / "elsewhere" / "signing.key").exists()


def test_a_redis_that_dies_during_an_import_costs_nothing(
    make_store: StoreMaker, elsewhere: Elsewhere, own_server: RedisServer, path: Path
) -> None:
    fill(make_store())
    make_store().export(path)

    def die(done: int, total: int) -> None:
        if done == 3:
            own_server.kill()

    result = elsewhere().import_(path, progress=die)
    assert (result.imported, result.redis) == (8, False)
    assert [elsewhere().get(key) for key in KEYS] == [payload(key) for key in KEYS]
    own_server.start()
    with elsewhere() as store:
        store.ping()
        # Those that went to the dead server went with it; they come again when they are used.
        wait_until(lambda: store.stats()["entries"] >= 5)


def test_a_redis_that_dies_during_an_export_leaves_the_old_file(
    make_store: StoreMaker, elsewhere: Elsewhere, own_server: RedisServer, path: Path
) -> None:
    fill(elsewhere())
    path.write_bytes(b"old")

    def die(done: int, total: int) -> None:
        if done == 3:
            own_server.kill()

    key_file = elsewhere().options.key_file
    with pytest.raises(StoreUnavailable):
        elsewhere(home=str(path.parent / "third"), key_file=key_file).export(path, progress=die)
    assert path.read_bytes() == b"old"
    assert not [name for name in path.parent.iterdir() if name.name.startswith(path.name + ".")]


def test_one_entry_at_a_time_is_in_memory(make_store: StoreMaker, elsewhere: Elsewhere, path: Path) -> None:
    import tracemalloc

    size = 1 << 20
    keys = [Key({"n": number}) for number in range(24)]
    with make_store(url="unix:///no-server", memory_bytes=0) as store:
        fill(store, keys, size)
        other = elsewhere(url="unix:///no-server", memory_bytes=0)
        tracemalloc.start()
        try:
            store.export(path)
            other.import_(path)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert path.stat().st_size > 24 * size
    # An entry, and the copies that its check makes of it.
    assert peak < 8 * size


def test_the_tier_tells_what_is_there(make_store: StoreMaker) -> None:
    store = make_store()
    fill(store, KEYS[:3])
    tier = store._components.limits.tier()
    assert isinstance(tier, RedisTier)
    assert tier.present([key.digest for key in KEYS]) == [key.digest for key in KEYS[:3]]
