"""The journal: nothing is lost between writers and readers, and it stays small."""

from __future__ import annotations

import threading
from pathlib import Path

from poolrt.cachestore.journal import Journal
from poolrt.cachestore.stats import Batch, Sent

DIGESTS = [f"{number:064x}" for number in range(5000)]
SENT = (Sent("a1b2", 3, {"misses": 2, "hits.files": 1}), Sent("c3", 12, {"saved_us": 10**12}))


def test_what_is_appended_is_taken_once_and_added_up(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "ns" / "journal"))
    journal.append(Batch({"misses": 2}, (DIGESTS[0],)))
    journal.append(Batch({"misses": 3, "hits.files": 1}, (DIGESTS[1], DIGESTS[0])))
    total = Batch({"misses": 5, "hits.files": 1}, (DIGESTS[1], DIGESTS[0]))
    assert journal.read() == total
    assert journal.take() == total
    assert journal.take() == Batch({}, ())


def test_sent_batches_are_taken_once_as_they_were(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "journal"))
    journal.append(Batch({}, (), SENT[:1]))
    journal.append(Batch({"misses": 1}, (), SENT[1:]))
    assert journal.read().counts == {"misses": 1}
    assert journal.take() == Batch({"misses": 1}, (), SENT)
    assert journal.take().sent == ()


def test_torn_and_foreign_sent_batches_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    lines = ("a1 3 misses=2", "a1 x misses=2", "a1 4 evil=2", "../x 5 misses=1", "\xff", "a1 6 misses=1,", "a1 7 mis")
    path.write_bytes("\n".join(f"sent {line}" for line in lines).encode("latin-1"))
    assert Journal(str(path)).take() == Batch({}, (), (Sent("a1", 3, {"misses": 2}),))


def test_writers_and_takers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "journal")
    taken: list[Batch] = []

    def write() -> None:
        for _ in range(200):
            Journal(path).append(Batch({"misses": 1}, ()))

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        taken.append(Journal(path).take())
    taken.append(Journal(path).take())
    assert sum(batch.counts.get("misses", 0) for batch in taken) == 800


def test_it_stays_small_and_keeps_all_counts(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(str(path))
    for start in range(0, 5000, 100):
        journal.append(Batch({"hits.files": 100}, tuple(DIGESTS[start : start + 100])))
        assert path.stat().st_size < 300_000
    for number in range(3000):
        journal.append(Batch({}, (), (Sent("a" * 64, number, {"hits.memory": 1}),)))
        assert path.stat().st_size < 300_000
    total = journal.take()
    assert total.sent[-1].number == 2999
    assert total.counts == {"hits.files": 5000}
    assert total.uses[-1] == DIGESTS[4999]


def test_torn_and_foreign_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(
        b"misses 2\nmis\nuse abc\nuse " + b"../" * 21 + b"x\n\xff\xfe 3\nunknown 4\nmisses -1\nmisses 1\nmiss"
    )
    assert Journal(str(path)).take() == Batch({"misses": 3}, ())
