"""The counts of hits by entry: the sums of all processes of a node, bounded, and safe against damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore, Key
from poolrt.cachestore.hits import _MAX_BYTES, HitLog

KEYS = [Key({"name": "hit", "number": number}) for number in range(3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "hits"


def test_counts_of_several_processes_are_added(path: Path) -> None:
    here, there = HitLog(str(path)), HitLog(str(path))
    assert here.counts().get(KEYS[0].digest) == 0
    here.add({KEYS[0].digest: 2, KEYS[1].digest: 1})
    there.add({KEYS[0].digest: 3})
    there.add({})
    assert [here.counts().get(key.digest) for key in KEYS] == [5, 1, 0]


def test_the_file_is_bounded_and_keeps_sums_of_what_was_found_last(path: Path) -> None:
    log = HitLog(str(path))
    for number in range(30):
        log.add({**{f"{number:04x}{other:012x}": 1 for other in range(1000)}, KEYS[0].digest: 7})
    assert path.stat().st_size <= _MAX_BYTES
    counts = log.counts()
    assert counts.get(KEYS[0].digest) == 210
    assert counts.get(f"{29:04x}{999:012x}") == 1
    assert counts.get(f"{0:04x}{0:012x}") == 0


def test_damaged_lines_are_left_out(path: Path) -> None:
    log = HitLog(str(path))
    log.add({KEYS[0].digest: 2})
    with path.open("ab") as file:
        file.write(
            b"\n\xff\xfe 1\n" + b"0" * 16 + b" -1\n" + b"0" * 15 + b" 1\n" + b"0" * 16 + b" " + b"9" * 40 + b"\nabc"
        )
    assert log.counts()._counts == {KEYS[0].digest[:16]: 2}


def test_entries_show_the_hits_of_processes_that_ended_and_of_this_one(tmp_path: Path) -> None:
    url, home = f"unix://{tmp_path}/none.sock", str(tmp_path / "home")
    for _ in range(3):
        with CacheStore.connect(url, home=home) as store:
            store.get_or_create(KEYS[0], lambda: b"x")  # created once, then found in files
            store.get_or_create(KEYS[0], lambda: b"x")  # found in memory
            store.get_or_create(KEYS[1], lambda: b"y")
    with CacheStore.connect(url, home=home) as store:
        assert store.get(KEYS[1]) == b"y"
        assert {entry.digest: entry.hits for entry in store.entries()} == {KEYS[0].digest: 5, KEYS[1].digest: 3}
    with CacheStore.connect(url, home=home, read_only=True) as store:
        assert store.get(KEYS[1]) == b"y"
        assert {entry.digest: entry.hits for entry in store.entries()} == {KEYS[0].digest: 5, KEYS[1].digest: 3}


def test_a_file_that_cannot_be_written_costs_nothing_but_the_counts(tmp_path: Path) -> None:
    with CacheStore.connect(f"unix://{tmp_path}/none.sock", home=str(tmp_path / "home")) as store:
        store.get_or_create(KEYS[0], lambda: b"x")
        (tmp_path / "home" / "default" / "hits").mkdir()
        assert store.get(KEYS[0]) == b"x"
        assert [entry.hits for entry in store.entries()] == [0]
        assert store.stats()["degraded"] >= 1
