"""Counts that Redis may have had already: written down as they are, taken once."""

from __future__ import annotations

from pathlib import Path

from poolrt.cachestore.stats import Sent
from poolrt.cachestore.unanswered import UnansweredFile

BATCHES = [Sent("a1b2", 3, {"misses": 2, "hits.files": 1}), Sent("c3", 12, {"saved_us": 10**12})]


def test_what_is_appended_is_taken_once(tmp_path: Path) -> None:
    file = UnansweredFile(str(tmp_path / "ns" / "unanswered"))
    assert file.take() == []
    file.append(BATCHES[:1])
    UnansweredFile(str(tmp_path / "ns" / "unanswered")).append(BATCHES[1:])
    assert file.take() == BATCHES
    assert file.take() == []


def test_torn_and_foreign_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "unanswered"
    path.write_bytes(b"a1 3 misses=2\na1 x misses=2\na1 4 evil=2\n../x 5 misses=1\n\xff\na1 6 misses=1,\na1 7 mis")
    assert UnansweredFile(str(path)).take() == [Sent("a1", 3, {"misses": 2})]


def test_it_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "unanswered"
    path.write_bytes(b"x" * (1 << 20))
    UnansweredFile(str(path)).append(BATCHES)
    assert path.stat().st_size == 1 << 20
