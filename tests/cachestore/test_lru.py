"""The LRU cache keeps to its bounds, never evicts what is in flight, and drops values outside its lock."""

from __future__ import annotations

import os
import random
import signal
import threading

import pytest

from poolrt.cachestore.lru import Lru
from tests.at_lines import at_each_line

#: Seconds after which a process that hangs is ended by SIGALRM.
BOUND_S = 20


class Value:
    """A value whose finalizer uses the cache that held it."""

    def __init__(self, cache: Lru[int, Value]) -> None:
        self.cache = cache

    def __del__(self) -> None:
        self.cache.remove(-1)


def test_past_its_capacity_the_least_recently_used_is_evicted_and_returned() -> None:
    lru: Lru[int, str] = Lru(2)
    assert lru.put(1, "a") == lru.put(2, "b") == []
    assert lru.get(1) == "a"
    assert lru.put(3, "c") == ["b"]
    assert [key for key in (1, 2, 3) if key in lru] == [1, 3]


def test_a_lower_capacity_evicts_at_once_and_none_holds_nothing() -> None:
    lru: Lru[int, str] = Lru(3)
    for key in range(3):
        lru.put(key, str(key))
    assert lru.set_capacity(1) == ["0", "1"]
    assert lru.set_capacity(0) == ["2"]
    assert lru.put(4, "4") == []
    assert (len(lru), lru.get_capacity()) == (0, 0)
    with pytest.raises(ValueError, match="got -1"):
        lru.set_capacity(-1)


def test_weight_is_bounded_and_follows_every_change() -> None:
    lru: Lru[int, bytes] = Lru(10, 8, len)
    lru.put(1, b"xxx")
    lru.put(1, b"xxxx")
    lru.put(2, b"xxxx")
    assert lru.weight == 8
    assert lru.put(3, b"x" * 9) == []
    assert lru.put(4, b"x") == [b"xxxx"]
    assert lru.remove(2) == b"xxxx"
    assert lru.weight == 1
    lru.clear()
    assert (lru.weight, len(lru)) == (0, 0)


def test_a_value_in_flight_stays_until_it_has_ended() -> None:
    ended: set[str] = set()
    lru: Lru[int, str] = Lru(1, evictable=ended.__contains__)
    for key, value in enumerate("abc"):
        assert lru.get_or_put(key, value) is None
    assert len(lru) == 3
    ended.update("ab")
    assert lru.evict() == ["a", "b"]
    assert lru.get_or_put(2, "other") == "c"


def test_a_forked_child_drops_what_is_in_flight() -> None:
    lru: Lru[int, bytes] = Lru(3, 10, len, bool)
    lru.put(1, b"xx")
    lru.put(2, b"")
    lru.begin_in_child()
    assert (1 in lru, 2 in lru, lru.weight) == (True, False, 2)


def test_values_are_removed_on_a_condition() -> None:
    lru: Lru[int, str] = Lru(3)
    for key, value in enumerate("abc"):
        lru.put(key, value)
    assert lru.remove(0, lambda value: value == "b") is None
    assert lru.remove(1, lambda value: value == "b") == "b"
    assert lru.remove_where(lambda key, value: key == 0 or value == "x") == ["a"]
    assert list(lru.values) == [2]


def test_a_finalizer_may_use_the_cache_that_evicts_its_value() -> None:
    lru: Lru[int, Value] = Lru(1)

    def use() -> None:
        for key in (1, 1, 2, 3):
            lru.put(key, Value(lru))
        lru.get_or_put(4, Value(lru))
        lru.remove(4)
        lru.put(5, Value(lru))
        lru.clear()

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


# Python 3.12 warns of threads at a fork, which this test is about.
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_process_that_is_forked_while_a_thread_writes_can_write() -> None:
    writing, over = threading.Event(), threading.Event()

    def weigh(value: int) -> int:
        if value < 0:
            writing.set()
            over.wait(BOUND_S)
        return 1

    lru: Lru[int, int] = Lru(2, 10, weigh)
    thread = threading.Thread(target=lru.put, args=(0, -1))
    thread.start()
    assert writing.wait(BOUND_S)
    pid = os.fork()
    if pid == 0:
        signal.alarm(BOUND_S)
        lru.put(1, 1)
        os._exit(0 if lru.get(1) == 1 else 1)
    over.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("capacity", [2, 5])
def test_a_writer_may_be_interrupted_by_another_of_its_thread(capacity: int) -> None:
    rng = random.Random(3)
    cache: Lru[int, bytes] = Lru(capacity, 30, len)

    def interrupt() -> None:
        rng.choice((cache.clear, cache.evict, lambda: cache.put(1, b"11"), lambda: cache.get_or_put(2, b"2222")))()

    def write() -> None:
        for key in (1, 2, 3):
            cache.put(key, bytes(key))
        cache.get_or_put(rng.choice((2, 4)), bytes(25))
        cache.remove(3)

    assert at_each_line(write, interrupt, "cachestore/lru") > 20
    assert cache.weight == sum(map(len, cache.values.values())) <= 30
    assert len(cache) <= capacity
