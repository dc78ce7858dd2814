"""The pause of garbage collection."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Iterator

import pytest

from poolrt.cachestore import garbage
from poolrt.cachestore.garbage import collection_paused


def test_a_pause_ends_with_its_block() -> None:
    with collection_paused():
        assert not gc.isenabled()
        with collection_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_program_that_collects_nothing_keeps_it_so() -> None:
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_error_ends_a_pause() -> None:
    try:
        with collection_paused():
            raise ValueError
    except ValueError:
        assert gc.isenabled()


def test_a_child_that_is_forked_in_a_pause_of_another_thread_collects() -> None:
    begun, forked = threading.Event(), threading.Event()

    def pause() -> None:
        with collection_paused():
            begun.set()
            forked.wait(30)

    other = threading.Thread(target=pause)
    other.start()
    begun.wait(30)
    child = os.fork()
    if child == 0:
        os._exit(0 if gc.isenabled() else 1)
    assert not gc.isenabled()
    forked.set()
    other.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gc.isenabled()


def test_pauses_of_many_threads_leave_collection_on() -> None:
    def pause() -> None:
        for _ in range(300):
            with collection_paused():
                pass

    threads = [threading.Thread(target=pause) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gc.isenabled()


class Ring:
    """An object that only a collection frees."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give a process that has frozen nothing; the tests' own has."""
    monkeypatch.setattr(garbage, "_has_frozen", False)
    gc.unfreeze()
    yield
    gc.freeze()


def test_what_is_made_to_stay_counts_as_old_and_is_still_collected(thawed: None) -> None:
    with collection_paused(made_to_stay=True):
        ring = Ring()
    assert any(each is ring for each in gc.get_objects(generation=2))
    gone = weakref.ref(ring)
    del ring
    gc.collect(0)
    assert gone() is not None
    gc.collect()
    assert gone() is None
    assert gc.get_freeze_count() == 0


def test_what_a_program_has_frozen_stays_so(thawed: None) -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    with collection_paused(made_to_stay=True):
        ring = Ring()
    assert gc.get_freeze_count() == frozen
    assert any(each is ring for each in gc.get_objects(generation=0))


def test_what_is_frozen_is_counted_once(thawed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []

    def counted() -> int:
        counts.append(7)
        return 7

    monkeypatch.setattr(gc, "get_freeze_count", counted)
    for _ in range(3):
        with collection_paused(made_to_stay=True):
            pass
    assert counts == [7]
