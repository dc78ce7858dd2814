"""The log of names that have asked for keys: the last one counts, it stays small, and survives damage to its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore, Key
from poolrt.cachestore.asks import AskLog
from poolrt.cachestore.bounded_log import MAX_BYTES

KEYS = [Key({"name": "asked", "number": number}) for number in range(5)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "asks"


def test_the_last_name_that_asked_for_a_key_is_returned(path: Path) -> None:
    here, there = AskLog(str(path)), AskLog(str(path))
    assert here.names().get(KEYS[0].digest) is None
    here.note("first", KEYS[:3])
    there.note("second \u20ac\n \ud800", KEYS[1:2])
    found = here.names()
    assert [found.get(key.digest) for key in KEYS[:4]] == ["first", "second \u20ac\n ?", "first", None]


def test_the_same_is_noted_once_in_a_while_and_nothing_without_keys(path: Path) -> None:
    log = AskLog(str(path))
    for _ in range(3):
        log.note("model", KEYS)
        log.note("none", [])
    assert len(path.read_bytes().splitlines()) == 1
    log.note("model", KEYS[:1])
    assert len(path.read_bytes().splitlines()) == 2


def test_the_file_is_bounded_and_keeps_the_latest(path: Path) -> None:
    log = AskLog(str(path))
    many = [Key({"name": "many", "number": number}) for number in range(4000)]
    for number in range(20):
        log.note(f"model {number} " + "x" * 5000, many)
    assert path.stat().st_size <= MAX_BYTES
    assert (log.names().get(many[0].digest) or "").startswith("model 19 xxx")


def test_damaged_lines_are_left_out(path: Path) -> None:
    log = AskLog(str(path))
    log.note("good", KEYS[:1])
    with path.open("ab") as file:
        file.write(
            b"\n\xff\xfe\nZ29vZA==\n!! " + b"0" * 16 + b"\nZXZpbA== ../../x,ABC," + b"g" * 16 + b"\n/w== 00\nZ29"
        )
    assert log.names()._names == {KEYS[0].digest[:16]: "good"}


def test_a_file_that_cannot_be_written_costs_nothing_but_the_names(tmp_path: Path) -> None:
    with CacheStore.connect(f"unix://{tmp_path}/none.sock", home=str(tmp_path / "home")) as store:
        store.get_or_create(KEYS[0], lambda: b"x")
        (tmp_path / "home" / "default" / "asks").mkdir()
        store.note_asked("model", KEYS)
        assert [entry.asked_by for entry in store.entries()] == [None]
        assert store.stats()["degraded"] >= 1
