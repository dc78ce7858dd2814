"""Policies of the primitive cache: each passes the same tests, and evicts in its own order."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from poolrt.cachestore import Key
from poolrt.workers.primitives.cache import Future, PrimitiveCache
from poolrt.workers.primitives.entry import Entry
from poolrt.workers.primitives.policies import CostPrimitiveCache, LruPrimitiveCache

from .crowd import BOUND_S, THREADS
from .fifo import Fifo, Policy, completed


def test_the_first_to_ask_adds_its_future_and_all_others_share_it(policy: Policy) -> None:
    cache = policy(4)
    key, future = completed("one")
    assert cache.get_or_add(key, future) is None
    assert cache.get_or_add(Key({"primitive": "one"}), Future()) is future
    assert cache.get_size() == 1


def test_what_is_added_replaces_the_former_one(policy: Policy) -> None:
    cache = policy(1)
    (key, first), (_, second), (other, third) = completed("one"), completed("one"), completed("two")
    cache.add(key, first)
    cache.add(key, second)
    assert (cache.get(key), cache.get_size()) == (second, 1)
    cache.add(other, third)
    assert (cache.get(key), cache.get(other), cache.get_size()) == (None, third, 1)
    cache.set_capacity(0)
    cache.add(key, first)
    assert (cache.get(key), cache.get_size()) == (None, 0)


@pytest.mark.parametrize("used", [True, False])
def test_the_least_recently_used_is_evicted(used: bool) -> None:
    cache = LruPrimitiveCache(2)
    (a, first), (b, second), (c, third) = completed("a"), completed("b"), completed("c")
    cache.get_or_add(a, first)
    cache.get_or_add(b, second)
    if used:
        assert cache.get_or_add(a, Future()) is first
    cache.get_or_add(c, third)
    assert [cache.get(key) for key in (a, b, c)] == ([first, None, third] if used else [None, second, third])
    assert cache.get_size() == cache.get_capacity() == 2


def test_the_first_that_came_is_evicted_by_a_users_policy() -> None:
    cache = Fifo(2)
    (a, first), (b, second), (c, third) = completed("a"), completed("b"), completed("c")
    cache.get_or_add(a, first)
    cache.get_or_add(b, second)
    assert cache.get_or_add(a, Future()) is first
    cache.get_or_add(c, third)
    assert [cache.get(key) for key in (a, b, c)] == [None, second, third]


def test_the_least_seconds_to_create_again_per_byte_are_evicted() -> None:
    rng = random.Random(5)
    cache = CostPrimitiveCache(40)
    entries = [(*completed(str(number), rng.random(), rng.randrange(1, 5)), number) for number in range(40)]
    for key, future, _ in entries:
        cache.add(key, future)
    # Equal ones in the order of their use
    (slow, first), (also_slow, second) = completed("slow", 2.0, 1), completed("also slow", 4.0, 2)
    cache.set_capacity(42)
    cache.add(slow, first)
    cache.add(also_slow, second)
    assert cache.get(slow) is first
    by_rank = sorted(entries, key=lambda entry: entry[1].result(0).creation_s / entry[1].result(0).nbytes)
    for kept in range(39, -1, -1):
        cache.set_capacity(kept + 2)
        assert {number for key, _, number in entries if cache.get(key)} == {entry[2] for entry in by_rank[40 - kept :]}
    cache.get(slow)
    cache.set_capacity(1)
    assert (cache.get(slow), cache.get(also_slow)) == (first, None)


def test_threads_that_evict_one_another_find_what_they_ask_for(policy: Policy) -> None:
    cache, entries = policy(4), [completed(str(number)) for number in range(8)]

    def ask(seed: int) -> bool:
        rng = random.Random(seed)
        chosen = [rng.choice(entries) for _ in range(500)]
        found = [(cache.get_or_add(key, future), future) for key, future in chosen]
        return all(one is None or one is other for one, other in found)

    with ThreadPoolExecutor(THREADS) as threads:
        assert all(threads.map(ask, range(THREADS), timeout=BOUND_S))
    assert cache.get_size() == 4


def test_what_is_under_way_is_not_evicted(policy: Policy) -> None:
    cache = policy(1)
    key, (other, ready) = Key({"primitive": "under way"}), completed("ready")
    under_way = Future()
    cache.get_or_add(key, under_way)
    cache.get_or_add(other, ready)
    assert cache.get(key) is under_way
    cache.set_capacity(0)
    assert cache.get(key) is under_way
    # Once it is completed, it is evicted like any other
    under_way.set_result(ready.result(0))
    cache.remove_if_invalidated(key)
    assert cache.get_size() == 0


def test_only_a_failed_future_is_removed_as_invalidated(policy: Policy) -> None:
    cache = policy(4)
    for end, removed in ((None, False), (ValueError("no"), True)):
        key, future = Key({"primitive": str(end)}), Future()
        cache.get_or_add(key, future)
        cache.remove_if_invalidated(key)
        assert cache.get(key) is future
        if end is not None:
            future.set_exception(end)
        cache.remove_if_invalidated(key)
        assert (cache.get(key) is None) == removed


def test_a_capacity_of_0_clears_the_cache_and_turns_it_off(policy: Policy) -> None:
    cache = policy(4)
    key, future = completed("kept no more")
    cache.get_or_add(key, future)
    cache.set_capacity(0)
    assert (cache.get_size(), cache.get_capacity()) == (0, 0)
    assert cache.get_or_add(key, future) is None
    assert cache.get_size() == 0
    with pytest.raises(ValueError, match="capacity: expect 0 or more, got -1"):
        cache.set_capacity(-1)


def test_a_cache_that_lacks_a_method_is_refused_by_name() -> None:
    class Unfinished(Fifo):
        """A policy without a size."""

        get_size = PrimitiveCache.get_size

    with pytest.raises(TypeError, match=r"abstract class Unfinished with abstract method '?get_size'?"):
        Unfinished()


@pytest.mark.parametrize("end", ["assigned", "deleted"])
def test_a_cached_primitive_is_immutable(end: str) -> None:
    primitive = completed("shared")[1].result(0)
    for name in ("identity", "entry", "nested", "creation_s", "nbytes", "another"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(primitive, name, None) if end == "assigned" else delattr(primitive, name)
    for name in Entry._fields:
        with pytest.raises(AttributeError):
            setattr(primitive.entry, name, None) if end == "assigned" else delattr(primitive.entry, name)
