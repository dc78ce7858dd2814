"""Results beside entries: signed, bounded, gone after a clear, and in no count."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore, Key
from poolrt.cachestore import results as module
from poolrt.cachestore.entry import EntryCodec, EntryMeta
from poolrt.cachestore.signing import SigningKey

KEY = Key({"graph": b"1"})
META = EntryMeta(0, 0.0, 0.0, "", "")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def store_at(home: Path, **options: object) -> CacheStore:
    return CacheStore.connect(f"unix://{home}/none.sock", home=str(home), **options)


def files_of(home: Path) -> list[Path]:
    return sorted(home.glob("*/results/entries/*/*"))


def test_another_process_of_the_node_finds_a_result_which_is_in_no_count(home: Path) -> None:
    with store_at(home) as store:
        assert store.results.get(KEY) is None
        store.results.put(KEY, b"plan")
        assert store.results.get(Key({"graph": b"2"})) is None
    with store_at(home) as store:
        assert store.results.get(KEY) == b"plan"
        # A result is no entry: neither found nor counted as one
        assert store.get_many([KEY]) == [None]
        assert store.entries() == []
        assert store.stats()["hits"] == {"memory": 0, "files": 0, "prebuilt": 0, "redis": 0}


@pytest.mark.parametrize("position", [0, 8, 31, 60, -40, -1])
def test_a_damaged_result_is_counted_removed_and_not_returned(home: Path, position: int) -> None:
    with store_at(home) as store:
        store.results.put(KEY, b"plan")
        (path,) = files_of(home)
        blob = bytearray(path.read_bytes())
        blob[position] ^= 0x10
        path.write_bytes(blob)
        assert store.results.get(KEY) is None
        assert files_of(home) == []
        store.results.put(KEY, b"plan")
        assert store.results.get(KEY) == b"plan"
        assert store.stats()["corrupt"] + store.stats()["forged"] == 1


def test_a_result_of_another_key_or_kind_is_not_returned(home: Path) -> None:
    with store_at(home) as store:
        store.results.put(KEY, b"plan")
        (path,) = files_of(home)
        # Given one signed with another key, or an entry of the same key, in its place
        own = EntryCodec(SigningKey((home / "signing.key").read_bytes().strip()), "default")
        for blob in (
            EntryCodec(SigningKey(b"someone else's key"), "default").pack(KEY.canonical, b"evil", META, 3),
            own.pack(KEY.canonical, b"an entry", META),
            own.pack(Key({"graph": b"3"}).canonical, b"another", META, 3),
        ):
            path.write_bytes(blob)
            assert store.results.get(KEY) is None
        path.write_bytes(own.pack(KEY.canonical, b"plan", META, 3))
        assert store.results.get(KEY) == b"plan"


def test_a_clear_or_a_capacity_of_0_leaves_no_result(home: Path) -> None:
    with store_at(home) as store:
        store.results.put(KEY, b"plan")
        store.clear()
        assert store.results.get(KEY) is None
        store.set_capacity(0)
        store.results.put(KEY, b"plan")
        assert store.results.get(KEY) is None
        store.set_capacity(4)
        assert store.results.get(KEY) is None


def test_a_store_that_writes_nothing_reads_results_only(home: Path) -> None:
    with store_at(home) as store:
        store.results.put(KEY, b"plan")
    with store_at(home, read_only=True) as store:
        assert store.results.get(KEY) == b"plan"
        store.results.put(Key({"graph": b"2"}), b"plan")
    assert len(files_of(home)) == 1


def test_results_are_bounded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 8)
    monkeypatch.setattr(module, "_LONGEST", 100)
    with store_at(home) as store:
        for n in range(200):
            store.results.put(Key({"graph": n}), b"plan")
        assert 0 < len(files_of(home)) <= 8 + 32  # a process looks at the folder after 32 of its own at the latest
        store.results.put(KEY, bytes(101))
        assert store.results.get(KEY) is None


def test_a_folder_that_cannot_be_used_costs_no_error(home: Path) -> None:
    with store_at(home) as store:
        store.results.put(KEY, b"plan")
        (path,) = files_of(home)
        path.unlink()
        path.parent.rmdir()
        path.parent.write_text("no folder")
        assert store.results.get(KEY) is None
        store.results.put(KEY, b"plan")
        assert store.results.get(KEY) is None
        assert store.stats()["degraded"] > 0
