"""The node's files: complete or not there, never replaced, bounded; and the file lease to create one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from poolrt.cachestore import file_lease as room
from poolrt.cachestore.file_lease import FileLease, FileLeaseWait
from poolrt.cachestore.files import FileStatus, FilesTier

DIGESTS = [f"{number:064x}" for number in range(40)]


@pytest.fixture
def tier(tmp_path: Path) -> FilesTier:
    """Return a tier with room for a thousand bytes."""
    return FilesTier(str(tmp_path), 1000)


def test_an_entry_comes_back_until_it_is_removed(tier: FilesTier) -> None:
    assert tier.get(1, DIGESTS[0]) is None
    tier.put(1, DIGESTS[0], b"blob", 10)
    assert tier.get(1, DIGESTS[0]) == b"blob"
    assert tier.remove(1, DIGESTS[0])
    assert not tier.remove(1, DIGESTS[0])
    assert tier.get(1, DIGESTS[0]) is None


def test_an_entry_never_replaces_another(tier: FilesTier) -> None:
    tier.put(1, DIGESTS[0], b"newer", 10)
    tier.put(1, DIGESTS[0], b"late", 10)
    assert tier.get(1, DIGESTS[0]) == b"newer"


def test_another_generation_does_not_see_it(tier: FilesTier) -> None:
    tier.put(1, DIGESTS[0], b"old", 10)
    assert tier.get(2, DIGESTS[0]) is None
    tier.sweep(2, 10)
    assert tier.get(1, DIGESTS[0]) is None


def test_past_its_capacity_the_least_recently_used_goes(tier: FilesTier, tmp_path: Path) -> None:
    for index, digest in enumerate(DIGESTS[:4]):
        tier.put(1, digest, b"x", 4)
        os.utime(tmp_path / "entries" / f"{1:016x}" / digest, (index, index))
    tier.get(1, DIGESTS[0])
    tier.put(1, DIGESTS[4], b"x", 4)
    assert {status.digest for status in tier.listing(1)} == {DIGESTS[0], *DIGESTS[2:5]}


def test_bytes_are_bounded_too(tier: FilesTier) -> None:
    for digest in DIGESTS[:8]:
        tier.put(1, digest, b"x" * 300, 8)
    assert sum(status.bytes for status in tier.listing(1)) <= 1000
    tier.put(1, DIGESTS[9], b"x" * 1001, 8)
    assert tier.get(1, DIGESTS[9]) is None


def test_filling_a_large_folder_reads_it_a_few_times_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a folder with much room
    tier = FilesTier(str(tmp_path), 1 << 30)
    read: list[int] = []
    listing = tier.listing

    def noted(generation: int) -> list[FileStatus]:
        read.append(generation)
        return listing(generation)

    monkeypatch.setattr(tier, "listing", noted)
    # When entries fill a tenth of it
    for number in range(1000):
        tier.put(1, f"{number:064x}", b"x" * 100, 10_000)
    # Then it was read at the first one, and after each sixteenth of the room that was left
    assert len(read) == 2
    assert len(listing(1)) == 1000


def test_several_processes_that_fill_a_folder_stay_near_its_capacity(tmp_path: Path) -> None:
    # Given tiers that know nothing of each other's puts
    tiers = [FilesTier(str(tmp_path), 1 << 30) for _ in range(8)]
    # When they put twice as much as there is room for, in turn
    for number in range(2000):
        tiers[number % len(tiers)].put(1, f"{number:064x}", b"x", 1000)
        # Then there is never more than each may put before it looks again
        if number % 100 == 0:
            assert len(tiers[0].listing(1)) <= 1000 + len(tiers) * (1000 // 16)


def test_what_a_crash_left_behind_is_swept_after_a_while(tier: FilesTier, tmp_path: Path) -> None:
    tier.put(1, DIGESTS[0], b"x", 10)
    folder = tmp_path / "entries" / f"{1:016x}"
    young, old = folder / f"{DIGESTS[1]}.aa", folder / f"{DIGESTS[1]}.bb"
    for draft in (young, old):
        draft.write_bytes(b"half")
    os.utime(old, (1, 1))
    tier.sweep(1, 10)
    assert (young.exists(), old.exists()) == (True, False)
    assert [status.digest for status in tier.listing(1)] == [DIGESTS[0]]


def test_a_lease_that_a_process_holds_is_not_swept_however_old_its_last_beat_seems(
    tier: FilesTier, tmp_path: Path
) -> None:
    # Given a lease that is held, and one that a crash has left, by a clock that steps, or that of another machine
    held = tier.file_lease(DIGESTS[0], 10.0).take(time.monotonic() + 10.0)
    assert held is not None
    left = tmp_path / "creating" / DIGESTS[1]
    left.touch()
    for digest in DIGESTS[:2]:
        os.utime(tmp_path / "creating" / digest, (1, 1))
    # When the folder is swept
    tier.sweep(1, 10)
    # Then only the second has gone, and nobody gets the first
    assert [path.name for path in (tmp_path / "creating").iterdir()] == [DIGESTS[0]]
    assert tier.file_lease(DIGESTS[0], 10.0).take(0.0) is None
    held.end()
    assert not list((tmp_path / "creating").iterdir())


def test_a_bad_entry_is_removed_only_if_it_is_still_that_one(tier: FilesTier) -> None:
    tier.put(1, DIGESTS[0], b"good", 10)
    tier.remove_if(1, DIGESTS[0], b"bad")
    assert tier.get(1, DIGESTS[0]) == b"good"
    tier.remove_if(1, DIGESTS[0], b"good")
    assert tier.get(1, DIGESTS[0]) is None


def test_unpublished_entries_are_remembered_until_they_are_published(tier: FilesTier) -> None:
    tier.put(1, DIGESTS[0], b"x", 10, unpublished=True)
    tier.put(1, DIGESTS[1], b"x", 10)
    assert tier.unpublished() == [DIGESTS[0]]
    mark = tier.mark_of(DIGESTS[0])
    assert mark is not None
    tier.mark_published(DIGESTS[0], mark)
    assert (tier.unpublished(), tier.mark_of(DIGESTS[0])) == ([], None)


def test_an_entry_that_is_lost_while_it_is_published_stays_unpublished(tier: FilesTier) -> None:
    tier.put(1, DIGESTS[0], b"x", 10, unpublished=True)
    mark = tier.mark_of(DIGESTS[0])
    assert mark is not None
    # Given a mark of another process, as soon as the kernel's clock has moved on
    deadline = time.monotonic() + 10
    while tier.mark_of(DIGESTS[0]) == mark:
        tier.mark_unpublished(DIGESTS[0])
        assert time.monotonic() < deadline
    tier.mark_published(DIGESTS[0], mark)
    assert tier.unpublished() == [DIGESTS[0]]


def take(wait: FileLeaseWait) -> FileLease:
    """Return the lease, which must be there."""
    lease = wait.take(time.monotonic() + 10)
    assert lease is not None
    return lease


def test_a_lease_leaves_nothing_behind(tier: FilesTier, tmp_path: Path) -> None:
    wait = tier.file_lease(DIGESTS[0], 5)
    take(wait).end()
    assert not wait.waited
    assert os.listdir(tmp_path / "creating") == []


def test_a_second_one_waits_for_the_first(tier: FilesTier) -> None:
    lease = take(tier.file_lease(DIGESTS[0], 5))
    wait = tier.file_lease(DIGESTS[0], 5)
    taken: list[FileLease] = []
    thread = threading.Thread(target=lambda: taken.append(take(wait)))
    thread.start()
    while not wait.waited:
        time.sleep(0.001)
    assert taken == []
    lease.end()
    thread.join(10)
    taken[0].end()
    assert not wait.took_over


def test_a_failure_reaches_the_waiting_processes_and_no_later_one(tier: FilesTier) -> None:
    lease = take(tier.file_lease(DIGESTS[0], 5))
    wait = tier.file_lease(DIGESTS[0], 5)
    thread = threading.Thread(target=wait.take, args=(time.monotonic() + 10,))
    thread.start()
    while not wait.waited:
        time.sleep(0.001)
    lease.fail(b"signed failure")
    lease.end()
    thread.join(10)
    assert wait.failure == b"signed failure"
    later = tier.file_lease(DIGESTS[0], 5)
    take(later).end()
    assert later.failure is None


def test_waiting_ends_at_the_deadline(tier: FilesTier) -> None:
    lease = take(tier.file_lease(DIGESTS[0], 60))
    assert tier.file_lease(DIGESTS[0], 60).take(time.monotonic() + 0.05) is None
    lease.end()


def test_a_silent_holder_loses_its_lease_and_cannot_harm_the_next(tier: FilesTier, tmp_path: Path) -> None:
    silent = take(tier.file_lease(DIGESTS[0], 5))
    wait = tier.file_lease(DIGESTS[0], 0.1)
    lease = take(wait)
    assert wait.took_over
    # When the silent one ends after all, the name still belongs to its successor
    silent.fail(b"late")
    silent.end()
    assert os.listdir(tmp_path / "creating") == [DIGESTS[0]]
    lease.end()
    assert not lease.beat()


class Clock:
    """The clock of the waiting processes; it moves when they sleep, and then `meanwhile` is called."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.now = time.monotonic()
        self._meanwhile = meanwhile

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._meanwhile()


def test_a_holder_that_beats_keeps_its_lease(tier: FilesTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = take(tier.file_lease(DIGESTS[0], 5))
    file = tmp_path / "creating" / DIGESTS[0]

    def beat() -> None:
        before = file.stat().st_mtime_ns
        while file.stat().st_mtime_ns == before:  # the kernel's clock has to move on
            assert lease.beat()

    clock = Clock(beat)
    monkeypatch.setattr(room, "time", clock)
    wait = tier.file_lease(DIGESTS[0], 0.2)
    assert wait.take(clock.now + 0.8) is None
    assert not wait.took_over
    lease.end()


def test_a_holder_that_hangs_is_silent_after_its_time(tier: FilesTier) -> None:
    lease = take(tier.file_lease(DIGESTS[0], 5, busy_for=0.0))
    assert not lease.beat()
    lease.end()


@pytest.mark.parametrize("when", [1.0, time.time() + 3600], ids=["long ago", "in an hour"])
def test_the_age_of_a_beat_by_the_wall_clock_means_nothing(tier: FilesTier, tmp_path: Path, when: float) -> None:
    lease = take(tier.file_lease(DIGESTS[0], 60))
    os.utime(tmp_path / "creating" / DIGESTS[0], (when, when))
    # Given a clock that has stepped, then a waiter measures the silence itself
    assert tier.file_lease(DIGESTS[0], 60).take(time.monotonic() + 0.05) is None
    wait = tier.file_lease(DIGESTS[0], 0.05)
    take(wait).end()
    assert wait.took_over
    lease.end()


def test_time_spent_on_waiting_elsewhere_counts(tier: FilesTier, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = take(tier.file_lease(DIGESTS[0], 60))
    clock = Clock()
    monkeypatch.setattr(room, "time", clock)
    wait = tier.file_lease(DIGESTS[0], 0.3)
    # Given a holder whose silence was seen elsewhere for long enough
    for _ in range(32):
        wait.look()
        clock.sleep(0.01)
    begin = clock.now
    # Then it is waited for no longer
    take(wait).end()
    assert clock.now == begin
    lease.end()


def test_a_killed_holder_frees_its_lease_at_once(tier: FilesTier, tmp_path: Path) -> None:
    code = """
import sys, time
from poolrt.cachestore.files import FilesTier, FileStatus
lease = FilesTier(sys.argv[1], 1000).file_lease(sys.argv[2], 60).take(time.monotonic() + 10)
print("mine", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code, str(tmp_path), DIGESTS[0]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        process.send_signal(signal.SIGKILL)
    take(tier.file_lease(DIGESTS[0], 60)).end()
