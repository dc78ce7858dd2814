"""`poolrt cache`: each sub-command on a store of its own, with an embedded server of its own."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.cachestore import CacheStore, Key
from poolrt.cachestore.constant_files import ConstantFiles
from poolrt.cli import main
from poolrt.graph.lower import lower
from poolrt.graph.wire_parser import parse
from poolrt.settings import Settings
from poolrt.workers.engines.target import cpu_target

ACTIONS = ("stats", "list", "show", "explain", "capacity", "clear", "verify", "export", "import", "down")


@pytest.fixture
def keys(home: Path) -> list[Key]:
    """Three entries of 1, 2 and 3 kB, the last used last."""
    made = [Key({"primitive": "convolution", "number": number, "blob": b"\x01\xff"}) for number in range(3)]
    with CacheStore.connect() as store:
        for number, key in enumerate(made):
            store.get_or_create(key, partial(bytes, 1000 * (number + 1)))
    return made


def _json(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["cache", *words, "--json"]) == status
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1
    loaded = json.loads(shown)
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.parametrize("action", ACTIONS)
def test_the_help_of_each_action_has_an_example(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["cache", action, "--help"])
    shown = capsys.readouterr().out
    assert left.value.code == 0
    assert f"\n  poolrt cache {action}" in shown
    assert "--json" in shown


def test_stats_count_what_other_stores_did(keys: list[Key], capsys: pytest.CaptureFixture[str]) -> None:
    with CacheStore.connect() as store:
        assert store.get(keys[0]) is not None
    answer = _json(capsys, "stats")
    assert (answer["entries"], answer["capacity"], answer["creations"], answer["misses"]) == (3, 1024, 3, 3)
    assert answer["hits"] == {"memory": 0, "files": 1, "prebuilt": 0, "redis": 0}
    assert answer["bytes"] >= 6000
    assert set(answer) == {
        *("entries", "bytes", "capacity", "capacity_bytes", "hits", "misses", "creations", "waits", "takeovers"),
        *("late", "duplicates", "creation_errors", "evictions", "corrupt", "forged", "malformed", "degraded"),
        *("seconds_saved", "process", "store", "tiers", "constants"),
    }
    nothing = {"files": 0, "bytes": 0, "unfinished": 0, "processes": [], "problems": []}
    assert answer["constants"] == {**nothing, "capacity_bytes": 8 << 30}


def test_stats_keep_the_store_and_the_process_apart(
    keys: list[Key], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with CacheStore.connect() as store:
        for _ in range(2):
            assert store.get(keys[0]) is not None
        store.set_capacity(7)
    monkeypatch.setenv("POOLRT_PRIMITIVE_CACHE_CAPACITY", "0")
    answer = _json(capsys, "stats")
    assert answer["process"] == {"capacity": 0, "capacity_bytes": 256 << 20, "hits": 1}
    assert answer["store"] == {
        **{name: answer[name] for name in ("entries", "bytes", "capacity", "capacity_bytes", "evictions")},
        "hits": {"files": 1, "prebuilt": 0, "redis": 0},
    }
    assert (answer["store"]["entries"], answer["store"]["capacity"], answer["capacity"]) == (3, 7, 7)
    assert main(["cache", "stats"]) == 0
    rows = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    names = [row[0] for row in rows]
    assert names.index("store") < names.index("entries") < names.index("process") < names.index("primitives")
    assert ["primitives", "at most 0, 256.0 MiB, as configured here"] in rows


def test_list_has_the_most_recently_used_first(keys: list[Key], capsys: pytest.CaptureFixture[str]) -> None:
    answer = _json(capsys, "list")
    assert answer["count"] == 3
    assert [entry["digest"] for entry in answer["entries"]] == [key.digest for key in reversed(keys)]
    assert {entry["kind"] for entry in answer["entries"]} == {"convolution"}
    assert {entry["creations"] for entry in answer["entries"]} == {1}
    limited = _json(capsys, "list", "--limit", "1")
    assert (limited["count"], len(limited["entries"])) == (3, 1)


def test_list_is_a_table_for_people(keys: list[Key], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:6] == ["digest", "operation", "shapes", "types", "implementation", "size"]
    assert lines[1].startswith(keys[2].digest[:16])
    assert lines[-1] == "3 of 3 entries"


def test_list_shows_what_a_primitive_computes_and_the_model_that_last_asked(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = poolrt.Graph("g")
    x = graph.input("x", (2, 3), "float32")
    graph.output("y", graph.matmul(x, np.ones((3, 4), np.float32)))
    lowered = lower(parse(graph.to_wire()[0]), {"cpu": cpu_target()})
    (key,) = (key for key in lowered.keys if key.fields["primitive"] in ("matmul", "inner_product"))
    with CacheStore.connect() as store:
        store.get_or_create(key, lambda: b"entry")
        store.note_asked("first", [key])
        store.note_asked("second \x1b[31m\n", [key])
        assert store.stats()["creations"] == 1  # and Redis has it
    (entry,) = _json(capsys, "list")["entries"]
    assert entry["operation"] == entry["kind"] == key.fields["primitive"]
    assert entry["implementation"] == key.fields["implementation"]
    assert (entry["shapes"]["src"], entry["shapes"]["dst"]) == ([2, 3], [2, 4])
    assert set(entry["dtypes"].values()) == {"f32"}
    assert entry["asked_by"] == "second \x1b[31m\n"
    assert main(["cache", "list"]) == 0
    head, line, _ = capsys.readouterr().out.splitlines()
    # Control characters of a name do not reach the terminal.
    assert line.endswith("  second ?[31m?")
    assert head.endswith("asked by")
    assert "2x3" in line
    assert "-> 2x4" in line
    assert " f32 " in line
    assert key.fields["implementation"] in line


def test_show_prints_every_field_of_the_key(keys: list[Key], capsys: pytest.CaptureFixture[str]) -> None:
    answer = _json(capsys, "show", keys[1].digest[:12].upper())
    assert (answer["digest"], answer["creations"]) == (keys[1].digest, 1)
    assert answer["key"] == {"primitive": "convolution", "number": 1, "blob": "01ff"}
    assert main(["cache", "show", keys[1].digest]) == 0
    assert "  blob       01ff" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("prefix", "status", "reason"),
    [
        ("zzzz", 2, "expected 4 or more digits"),
        ("abc", 2, "expected 4 or more digits"),
        ("0" * 64, 1, "no entry begins with"),
    ],
)
def test_show_refuses_a_wrong_or_unknown_digest(
    keys: list[Key], prefix: str, status: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "show", prefix]) == status
    assert reason in capsys.readouterr().err


def test_lowering_the_capacity_evicts_the_least_recently_used(
    keys: list[Key], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _json(capsys, "capacity", "2") | {"bytes": 0} == {
        "capacity": 2,
        "capacity_bytes": 0,
        "entries": 2,
        "bytes": 0,
    }
    assert {entry["digest"] for entry in _json(capsys, "list")["entries"]} == {keys[1].digest, keys[2].digest}
    answer = _json(capsys, "capacity", "--bytes", "4KiB")
    assert (answer["capacity"], answer["capacity_bytes"], answer["entries"]) == (2, 4096, 1)
    assert _json(capsys, "capacity") == answer


def test_a_capacity_of_zero_clears_the_cache(keys: list[Key], capsys: pytest.CaptureFixture[str]) -> None:
    assert _json(capsys, "capacity", "0")["entries"] == 0


@pytest.mark.parametrize("words", [["-3"], ["many"], ["--bytes", "9 apples"], ["1.5"]])
def test_a_wrong_capacity_is_refused_with_status_2(
    home: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "capacity", *words]) == 2
    assert f"argument {words[0] if len(words) == 2 else 'N'}: expected " in capsys.readouterr().err
    assert list(home.iterdir()) == []


def test_clear_removes_everything(home: Path, keys: list[Key], capsys: pytest.CaptureFixture[str]) -> None:
    files = ConstantFiles(**Settings.load().constant_files_arguments())
    files.find_or_write("ab" * 32, 5000, lambda: memoryview(bytes(5000)))
    assert _json(capsys, "stats")["constants"]["files"] == 1
    assert _json(capsys, "clear") == {"removed": 3, "constants": 1}
    assert not list(home.glob("default/constants/*/*"))
    assert _json(capsys, "list")["entries"] == []
    with CacheStore.connect() as store:
        assert store.get(keys[0]) is None


def test_verify_finds_nothing_in_a_valid_store(keys: list[Key], capsys: pytest.CaptureFixture[str]) -> None:
    assert _json(capsys, "verify") == {"files_checked": 3, "redis_checked": 3, "problems": []}


def test_verify_removes_an_entry_with_a_flipped_byte_and_exits_with_status_1(
    home: Path, keys: list[Key], capsys: pytest.CaptureFixture[str]
) -> None:
    # Given one entry whose file has lost a bit
    (file,) = [path for path in home.rglob("*") if path.is_file() and keys[0].digest in path.name]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    # When the store is verified, then that copy is found and removed, and the next look finds nothing
    answer = _json(capsys, "verify", status=1)
    assert [(problem["digest"], problem["tier"]) for problem in answer["problems"]] == [(keys[0].digest, "files")]
    assert not file.exists()
    assert _json(capsys, "verify")["problems"] == []
    assert _json(capsys, "stats")["corrupt"] == 1


def test_a_read_only_command_writes_nothing(home: Path, keys: list[Key], capsys: pytest.CaptureFixture[str]) -> None:
    # Given a bad entry in files
    (file,) = [path for path in home.rglob("*") if path.is_file() and keys[0].digest in path.name]
    file.write_bytes(b"rubbish")
    before = {path: path.read_bytes() for path in (home / "default").rglob("*") if path.is_file()}
    # When everything is looked at
    answer = _json(capsys, "verify", "--read-only", status=1)
    assert [problem["digest"] for problem in answer["problems"]] == [keys[0].digest]
    assert _json(capsys, "list", "--read-only")["count"] == 3
    assert _json(capsys, "show", keys[1].digest, "--read-only")["digest"] == keys[1].digest
    assert _json(capsys, "stats", "--read-only")["entries"] == 3
    # Then it is all still as it was
    assert {path: path.read_bytes() for path in (home / "default").rglob("*") if path.is_file()} == before


def test_a_read_only_command_starts_no_server(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "stats", "--read-only"]) == 1
    assert "a read-only store starts none" in capsys.readouterr().err
    assert list(home.iterdir()) == []


def test_a_change_to_a_read_only_store_is_refused(
    keys: list[Key], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POOLRT_READ_ONLY", "1")
    for words in (["clear"], ["capacity", "5"], ["down"]):
        assert main(["cache", *words]) == 1
        assert "the store is read-only and does not" in capsys.readouterr().err
    assert _json(capsys, "list")["count"] == 3


def test_down_stops_the_server_and_its_data_stay(keys: list[Key], capsys: pytest.CaptureFixture[str]) -> None:
    assert _json(capsys, "down") == {"stopped": True}
    assert _json(capsys, "down") == {"stopped": False}
    assert _json(capsys, "stats")["entries"] == 3


def test_down_refuses_a_server_that_is_not_ours(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POOLRT_REDIS_URL", "redis://127.0.0.1:1")
    assert main(["cache", "down"]) == 2
    assert "stop it where it was started" in capsys.readouterr().err


def test_an_unreachable_redis_exits_with_status_1_and_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POOLRT_REDIS_URL", "redis://user:secret@127.0.0.1:1")
    for action in ("stats", "list", "clear", "verify"):
        assert main(["cache", action]) == 1
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith("poolrt: the store's Redis at redis://user:***@127.0.0.1:1 is not available")
        assert shown.err.count("\n") == 1


@pytest.mark.slow
def test_a_frozen_server_exits_with_status_1_in_bounded_time(
    home: Path, keys: list[Key], capsys: pytest.CaptureFixture[str]
) -> None:
    pid = int((home / "redis" / "redis.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        assert main(["cache", "stats"]) == 1
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "not available" in capsys.readouterr().err


def test_a_key_file_that_others_can_read_is_refused(
    home: Path, keys: list[Key], capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "signing.key").chmod(0o644)
    assert main(["cache", "verify"]) == 1
    assert "chmod 600" in capsys.readouterr().err
    (home / "signing.key").chmod(0o600)
