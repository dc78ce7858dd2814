"""`poolrt cache explain`: text and JSON about the latest misses, and about one key."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from poolrt.cachestore import CacheStore, Key
from poolrt.cli import main
from poolrt.cli.cache import explain

OLD = Key({"primitive": "convolution", "operation": {"n": 1}, "toolchain": {"numba": "0.67.1"}, "blob": b"\x01\xff"})
NEW = Key({"primitive": "convolution", "operation": {"n": 1}, "toolchain": {"numba": "0.68.1"}, "blob": b"\x01\xff"})
FAR = Key({"primitive": "convolution", "operation": {"n": 2, "m": 3}, "toolchain": {"numba": "0.68.1"}})
ALONE = Key({"primitive": "softmax"})


@pytest.fixture
def missed(home: Path) -> None:
    """An entry that was created, and three keys that were missed afterwards, the last of them created, too."""
    with CacheStore.connect() as store:
        store.get_or_create(OLD, lambda: b"x")
    with CacheStore.connect() as store:
        store.get(ALONE)
        store.get(FAR)
        store.get_or_create(NEW, lambda: b"y")


def _json(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> Any:
    capsys.readouterr()
    assert main(["cache", "explain", *words, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def _lines(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    capsys.readouterr()
    assert main(["cache", "explain", *words]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.usefixtures("missed")
def test_the_latest_misses_are_explained_the_latest_first(capsys: pytest.CaptureFixture[str]) -> None:
    answer = _json(capsys)["explanations"]
    assert [item["digest"] for item in answer] == [NEW.digest, FAR.digest, ALONE.digest, OLD.digest]
    newest = answer[0]
    assert (newest["kind"], newest["compared"], newest["stored"]["creator"]) == ("convolution", 1, os.uname().nodename)
    assert newest["near"][0]["digest"] == OLD.digest
    assert newest["near"][0]["differences"] == [{"field": "toolchain.numba", "there": "0.67.1", "here": "0.68.1"}]
    assert newest["stored"]["creations"] == 1
    assert answer[1]["stored"] is None
    assert sorted(answer[1]["near"][0]["differences"], key=lambda item: str(item["field"])) == [
        {"field": "blob", "there": "01ff"},
        {"field": "operation.m", "here": 3},
        {"field": "operation.n", "there": 1, "here": 2},
        {"field": "toolchain.numba", "there": "0.67.1", "here": "0.68.1"},
    ]
    assert (answer[2]["near"], answer[3]["near"]) == ([], [])
    assert len(_json(capsys, "--last", "2")["explanations"]) == 2


@pytest.mark.usefixtures("missed")
def test_the_text_names_the_field_that_differs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with CacheStore.connect() as store:
        missed_at = store.misses()[-1].time
    monkeypatch.setattr(explain, "time", SimpleNamespace(time=lambda: missed_at + 7))
    head, near = _lines(capsys, NEW.digest[:12])
    assert head.startswith(f"{NEW.digest[:16]} convolution, missed 7 s ago, then created by {os.uname().nodename} in ")
    assert near.startswith(f"  1 entry is near; nearest {OLD.digest[:16]} ({os.uname().nodename}, ")
    assert near.endswith(" differs in toolchain.numba: 0.67.1, here 0.68.1")


@pytest.mark.usefixtures("missed")
def test_the_text_lists_several_differences_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    head, near, *lines = _lines(capsys, FAR.digest)
    assert head.endswith("not stored now")
    assert near.endswith("differs in")
    assert sorted(lines) == [
        "    blob: 01ff, here absent",
        "    operation.m: absent, here 3",
        "    operation.n: 1, here 2",
        "    toolchain.numba: 0.67.1, here 0.68.1",
    ]


@pytest.mark.usefixtures("missed")
def test_the_text_says_that_there_is_no_near_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert _lines(capsys, ALONE.digest)[1] == "  no near entry: there was none of its kind"


def test_a_stored_key_is_explained_without_a_recent_miss(
    home: Path, capsys: pytest.CaptureFixture[str], missed: None
) -> None:
    (home / "default" / "misses").unlink()
    assert _lines(capsys) == ["no recent misses on this node"]
    (answer,) = _json(capsys, NEW.digest[:8])["explanations"]
    assert answer["near"][0]["digest"] == OLD.digest


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (["xyz"], 2, "expected 4 or more digits of a digest"),
        (["0" * 64], 1, "no entry and no recent miss of this node begins with"),
        (["--last", "0"], 2, "--last"),
    ],
)
def test_a_wrong_key_is_refused_in_one_line(
    home: Path, words: list[str], status: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "explain", *words]) == status
    shown = capsys.readouterr().err
    assert reason in shown
    assert shown.count("\n") == 1


@pytest.mark.usefixtures("missed")
def test_a_read_only_explain_writes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (home / "default" / "misses").read_bytes()
    assert len(_json(capsys, "--read-only")["explanations"]) == 4
    assert (home / "default" / "misses").read_bytes() == before
