"""The log of misses: it returns the latest, stays small, and survives damage to its file."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from poolrt.cachestore import Key
from poolrt.cachestore.misses import MissLog

KEYS = [Key({"primitive": "test", "n": number, "blob": b"\x00\n " * 10}) for number in range(20)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the record is."""
    return tmp_path / "folder" / "misses"


def test_the_latest_misses_are_returned_in_order(path: Path) -> None:
    begin = time.time()
    log = MissLog(str(path))
    assert log.latest(5) == []
    log.note(KEYS[:3])
    MissLog(str(path)).note(KEYS[3:6])
    found = MissLog(str(path)).latest(4)
    assert [miss.key for miss in found] == KEYS[2:6]
    assert all(begin - 0.001 <= miss.time <= time.time() for miss in found)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_key_that_is_missed_again_and_again_is_one_miss_of_the_first_time(path: Path) -> None:
    first, second = MissLog(str(path)), MissLog(str(path))
    first.note([KEYS[0]], since_s=100.0)
    second.note([KEYS[1]])
    second.note([KEYS[0]])
    size = path.stat().st_size
    for _ in range(10):
        first.note([KEYS[0]])
        second.note(KEYS[:2])
    # One process writes it once in a while; another one's line is taken for the same miss.
    assert path.stat().st_size == size
    found = first.latest(9)
    assert [miss.key for miss in found] == [KEYS[1], KEYS[0]]
    assert time.time() - found[1].time >= 100.0


def test_a_miss_after_a_long_time_is_another_one(path: Path) -> None:
    MissLog(str(path)).note([KEYS[0]], since_s=10_000.0)
    MissLog(str(path)).note([KEYS[0]])
    (found,) = MissLog(str(path)).latest(9)
    assert time.time() - found.time < 100.0


def test_the_file_stays_small_and_keeps_the_latest(path: Path) -> None:
    log = MissLog(str(path))
    for number in range(0, 5000, 50):
        log.note([Key({"n": number + more, "blob": b"x" * 500}) for more in range(50)])
        assert path.stat().st_size <= 512 * 1024
    found = log.latest(10_000)
    assert [miss.key.fields["n"] for miss in found] == list(range(5000 - len(found), 5000))
    assert len(found) > 300


def test_a_key_that_is_too_large_is_left_out(path: Path) -> None:
    log = MissLog(str(path))
    log.note([Key({"blob": b"x" * 100_000}), KEYS[0]])
    assert [miss.key for miss in log.latest(9)] == [KEYS[0]]


@pytest.mark.parametrize(
    "garbage",
    [b"\n", b"\xff\xfe\x00\n", b"1.0\n", b"later AAAA\n", b"1.0 AAAA\n", b"1.0 !!!!\n", b"nan gaFuAQ==\n", b"1.0 gaFu"],
)
def test_lines_that_are_not_whole_count_for_nothing(path: Path, garbage: bytes) -> None:
    log = MissLog(str(path))
    log.note([KEYS[0]])
    with path.open("ab") as file:
        file.write(garbage)
    MissLog(str(path)).note([KEYS[1]])
    MissLog(str(path)).note([KEYS[2]])
    found = [miss.key for miss in log.latest(9)]
    # What a crash has cut short may take the line after it along.
    assert found in ([KEYS[0], KEYS[1], KEYS[2]], [KEYS[0], KEYS[2]])


def test_processes_note_at_once_without_loss(path: Path) -> None:
    code = (
        "import sys; from poolrt.cachestore import Key; from poolrt.cachestore.misses import MissLog\n"
        "log = MissLog(sys.argv[1])\n"
        "for n in range(40): log.note([Key({'process': int(sys.argv[2]), 'n': n})])\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(path), str(number)]) for number in range(4)]
    assert [process.wait(30) for process in running] == [0] * 4
    assert len(MissLog(str(path)).latest(1000)) == 160


def test_a_file_that_cannot_be_used_is_an_error_for_the_caller_to_count(path: Path) -> None:
    os.makedirs(path)
    with pytest.raises(OSError, match=r"misses"):
        MissLog(str(path)).note(KEYS[:1])
    with pytest.raises(OSError, match=r"misses"):
        MissLog(str(path)).latest(1)
