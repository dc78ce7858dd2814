"""Hits in this node's files without a store: the same checks, the same counts, and nothing but hits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore, Key, PathRefused
from poolrt.cachestore.entry import EntryCodec, EntryMeta
from poolrt.cachestore.node_reader import NodeReader
from poolrt.cachestore.signing import SigningKey

KEY = Key({"primitive": "test", "n": 1})


@pytest.fixture
def store(tmp_path: Path) -> CacheStore:
    """Return a store without Redis that has one entry."""
    made = CacheStore.connect(url="unix:///no-server", namespace="ns", home=str(tmp_path / "home"))
    made.get_or_create(KEY, lambda: b"payload")
    made.close()
    return made


def read(store: CacheStore, key: Key = KEY) -> bytes | None:
    """Return what a new process reads."""
    return NodeReader(store.options.place).get(key, "kernels.py:7")


def entry_file(store: CacheStore) -> Path:
    """Return the file of the only entry."""
    (path,) = Path(store.options.folder).glob("entries/*/*")
    return path


def test_a_hit_counts_as_the_stores_own(store: CacheStore) -> None:
    os.utime(entry_file(store), (1, 1))
    before = store.stats()
    assert read(store) == b"payload"
    after = store.stats()
    assert after["hits"]["files"] == before["hits"]["files"] + 1
    assert after["misses"] == before["misses"]
    assert [entry.asked_by for entry in store.entries()] == ["kernels.py:7"]
    assert time.time() - entry_file(store).stat().st_mtime < 100


def test_a_miss_is_left_to_the_store_and_makes_nothing(store: CacheStore, tmp_path: Path) -> None:
    before = store.stats()
    assert read(store, Key({"primitive": "test", "n": 2})) is None
    assert store.stats() == before
    elsewhere = CacheStore.connect(url="unix:///no-server", home=str(tmp_path / "nowhere"))
    assert read(elsewhere) is None
    assert not (tmp_path / "nowhere").exists()


def _flip(store: CacheStore) -> None:
    content = bytearray(entry_file(store).read_bytes())
    content[-40] ^= 1
    entry_file(store).write_bytes(content)


def _forge(store: CacheStore) -> None:
    codec = EntryCodec(SigningKey(b"someone else's key"), store.options.namespace)
    entry_file(store).write_bytes(codec.pack(KEY.canonical, b"evil", EntryMeta(1, 0.0, 0.0, "", "")))


def _exchange(store: CacheStore) -> None:
    other = Key({"primitive": "test", "n": 3})
    store.get_or_create(other, lambda: b"of another key")
    folder = entry_file_of(store, KEY).parent
    (folder / KEY.digest).write_bytes((folder / other.digest).read_bytes())


def entry_file_of(store: CacheStore, key: Key) -> Path:
    """Return the file of a key's entry."""
    (path,) = Path(store.options.folder).glob(f"entries/*/{key.digest}")
    return path


@pytest.mark.parametrize("harm", [_flip, _forge, _exchange])
def test_an_entry_that_is_not_sound_is_left_to_the_store_which_counts_it(
    store: CacheStore, harm: Callable[[CacheStore], None]
) -> None:
    harm(store)
    assert read(store) is None
    with CacheStore.connect(url="unix:///no-server", namespace="ns", home=store.options.home) as again:
        assert again.fetch_or_create(KEY, lambda: b"payload").source == "created"
        assert again.stats()["corrupt"] + again.stats()["forged"] == 1
    assert read(store) == b"payload"


@pytest.mark.parametrize("harm", [lambda store: store.clear(), lambda store: store.set_capacity(0)])
def test_what_was_cleared_is_not_found(store: CacheStore, harm: Callable[[CacheStore], None]) -> None:
    content, path = entry_file(store).read_bytes(), entry_file(store)
    harm(store)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    assert read(store) is None


def test_a_damaged_state_is_left_to_the_store(store: CacheStore) -> None:
    state = Path(store.options.folder, "state")
    state.write_bytes(b"\0" * len(state.read_bytes()))
    assert read(store) is None
    assert not any(state.read_bytes())


def test_a_folder_that_others_can_change_is_refused_as_by_the_store(store: CacheStore) -> None:
    Path(store.options.home).chmod(0o777)
    assert read(store) is None
    with pytest.raises(PathRefused):
        CacheStore.connect(url="unix:///no-server", namespace="ns", home=store.options.home).get(KEY)


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_a_key_file_that_others_can_read_is_refused(store: CacheStore, mode: int) -> None:
    Path(store.options.home, "signing.key").chmod(mode)
    assert read(store) is None


def test_a_link_in_the_place_of_an_entry_is_refused(store: CacheStore, tmp_path: Path) -> None:
    path = entry_file(store)
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    assert read(store) is None


def test_a_hit_that_cannot_be_noted_is_left_to_the_store_which_counts_that(store: CacheStore) -> None:
    asks = Path(store.options.folder, "asks")
    asks.unlink(missing_ok=True)
    asks.mkdir()
    assert read(store) is None
    assert store.get(KEY) == b"payload"
    store.note_asked("kernels.py:7", [KEY])
    assert store.stats()["degraded"] > 0


def test_a_place_that_cannot_be_used_is_refused_by_name(store: CacheStore) -> None:
    with pytest.raises(ValueError, match=r"namespace '\.\./ns' is not usable"):
        NodeReader(store.options.place._replace(namespace="../ns"))
