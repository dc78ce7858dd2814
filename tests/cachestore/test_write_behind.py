"""What is put is kept a moment later, by a thread that does not outlive its use."""

from __future__ import annotations

import threading
import time

import pytest

from poolrt.cachestore import write_behind
from poolrt.cachestore.node_state import NodeState
from poolrt.cachestore.write_behind import WriteBehind
from tests.interrupting import is_interrupted

from .waiting import wait_until

STATE = NodeState()


def threads() -> list[threading.Thread]:
    """Return the threads that write."""
    return [thread for thread in threading.enumerate() if thread.name == "poolrt-write-behind"]


def test_what_is_put_is_kept_a_moment_later_in_order_by_another_thread() -> None:
    kept: list[tuple[str, int]] = []
    behind = WriteBehind(lambda state, digest, blob: kept.append((digest, threading.get_ident())))
    for number in range(20):
        behind.put(STATE, str(number), b"x")
    wait_until(lambda: len(kept) == 20)
    assert [digest for digest, _ in kept] == [str(number) for number in range(20)]
    assert threading.get_ident() not in {thread for _, thread in kept}
    behind.close()


def test_closing_keeps_what_waits_and_ends_the_thread() -> None:
    kept: list[str] = []
    behind = WriteBehind(lambda state, digest, blob: kept.append(digest))
    behind.put(STATE, "a", b"x")
    behind.close()
    assert kept == ["a"]
    assert not threads()
    behind.put(STATE, "b", b"x")
    behind.close()
    assert kept == ["a", "b"]


def test_without_anything_to_keep_there_is_no_thread() -> None:
    looked = threading.Event()

    def keep(_state: NodeState, digest: str, _blob: bytes) -> None:
        assert digest == "a" or looked.wait(10.0)

    behind = WriteBehind(keep)
    assert not threads()
    behind.put(STATE, "a", b"x")
    wait_until(lambda: not threads())
    behind.put(STATE, "b", b"x")
    assert threads()
    looked.set()
    behind.close()


def test_a_flood_is_kept_by_who_puts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a thread that does not look meanwhile
    monkeypatch.setattr(write_behind, "_PAUSE_S", 60.0)
    kept: list[int] = []
    behind = WriteBehind(lambda state, digest, blob: kept.append(threading.get_ident()))
    half = bytes(write_behind._MOST_BYTES // 2 + 1)
    behind.put(STATE, "a", half)
    behind.put(STATE, "b", half)
    assert kept == [threading.get_ident()] * 2
    behind.close()


def test_a_burst_that_never_ends_is_kept_all_the_same() -> None:
    kept: list[str] = []
    behind = WriteBehind(lambda state, digest, blob: kept.append(digest))
    deadline = time.monotonic() + 10.0
    while not kept:
        behind.put(STATE, "a", b"x")
        assert time.monotonic() < deadline
        time.sleep(0.001)
    behind.close()


def test_without_a_thread_entries_are_kept_at_once() -> None:
    kept: list[str] = []
    behind = WriteBehind(lambda state, digest, blob: kept.append(digest))
    usual = threading.stack_size(1 << 46)  # bytes: more than any machine has, so no thread can be started
    try:
        behind.put(STATE, "a", b"x")
    finally:
        threading.stack_size(usual)
    assert kept == ["a"]
    behind.put(STATE, "b", b"x")
    behind.close()
    assert kept == ["a", "b"]


def test_an_interrupt_comes_before_or_after_the_start_of_the_thread() -> None:
    kept: list[str] = []

    def put_is_interrupted(moment: int) -> bool:
        behind = WriteBehind(lambda state, digest, blob: kept.append(digest))
        interrupted = is_interrupted(lambda: behind.put(STATE, "a", b"x"), moment, "/threading.py")
        behind.close()
        return interrupted

    moments = 0
    while put_is_interrupted(1 + moments):
        moments += 1
        assert not threads()
    assert len(kept) == moments + 1
    assert moments > 10
