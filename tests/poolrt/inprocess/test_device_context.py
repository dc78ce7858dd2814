"""Device contexts: instances are found again, never mixed, bounded, and gone with their executors and threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple

import pytest

from poolrt.inprocess.device_context import CAPACITY, DeviceContext, InstanceKey

BOUND_S = 30.0


def key(output: str = "y", algorithm: str = "relu", dims: tuple[int, ...] = (2, 3), **others: object) -> InstanceKey:
    fields = {"what": "constant", "executor": "executor", "thread": 0, **others}
    return InstanceKey(details=(output, "eltwise", algorithm), shapes=(dims,), **fields)  # type: ignore[arg-type]


def test_an_instance_is_made_once_and_found_from_then_on() -> None:
    context = DeviceContext()
    made = [context.find_or_add(key(), object) for _ in range(3)]
    assert made[0] is made[1] is made[2]
    assert context.find(key()) is made[0]
    assert astuple(context.statistics()) == (1, 3, 1, 0, 0)


@pytest.mark.parametrize(
    "other",
    [
        key(output="z"),
        key(algorithm="tanh"),
        key(dims=(3, 2)),
        key(executor="another"),
        key(thread=1),
        key(what="plan"),
    ],
    ids=["output", "algorithm", "shape", "executor", "thread", "what"],
)
def test_any_difference_is_another_instance(other: InstanceKey) -> None:
    context = DeviceContext()
    first, second = object(), object()
    context.add(key(), first)
    assert context.find(other) is None
    context.add(other, second)
    assert (context.find(key()), context.find(other)) == (first, second)


def test_what_is_added_again_takes_the_place_of_what_was_there() -> None:
    context = DeviceContext()
    context.add(key(), 1)
    context.add(key(), 2)
    assert context.find(key()) == 2
    assert context.statistics().instances == 1


def test_the_least_recently_used_goes_beyond_the_capacity() -> None:
    context = DeviceContext(2)
    for output in ("a", "b"):
        context.add(key(output), output)
    assert context.find(key("a")) == "a"
    context.add(key("c"), "c")
    assert [context.find(key(output)) for output in "abc"] == ["a", None, "c"]
    statistics = context.statistics()
    assert (statistics.instances, statistics.created, statistics.evicted) == (2, 3, 1)


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_context_keeps_something(capacity: int) -> None:
    assert DeviceContext().capacity == CAPACITY
    with pytest.raises(ValueError, match=f"capacity: expect at least 1, got {capacity}"):
        DeviceContext(capacity)


def test_an_executor_is_forgotten_and_others_are_not() -> None:
    context = DeviceContext()
    mine, theirs = object(), object()
    for number in range(5):
        context.add(key(str(number), executor=mine), number)
    context.add(key(executor=theirs), "theirs")
    context.forget(mine)
    assert context.find(key(executor=theirs)) == "theirs"
    assert (context.statistics().instances, context.statistics().forgotten) == (1, 5)


def test_executors_that_go_while_an_instance_goes_are_forgotten_too() -> None:
    # Given an instance whose end is the end of an executor, as when the last reference is in a context
    context = DeviceContext(2)

    class Last:
        def __del__(self) -> None:
            context.forget("executor")

    context.add(key("last", executor="owner"), Last())
    context.add(key("a"), "a")
    # When it is evicted, which happens in the middle of another addition
    added = threading.Thread(target=context.add, args=(key("b", executor="another"), "b"), daemon=True)
    added.start()
    added.join(BOUND_S)
    # Then nothing hangs, and every instance that is left belongs to a thread
    assert not added.is_alive()
    assert context.statistics().instances == 1
    assert context.find(key("b", executor="another")) == "b"


def test_threads_have_numbers_of_their_own_only_where_they_share() -> None:
    alone, shared = DeviceContext(), DeviceContext(shared=True)
    together = threading.Barrier(8)

    def numbers() -> tuple[int, int, int]:
        together.wait(BOUND_S)
        return alone.thread(), shared.thread(), shared.thread()

    with ThreadPoolExecutor(8) as pool:
        found = [future.result(BOUND_S) for future in [pool.submit(numbers) for _ in range(8)]]
    assert {number for number, _, _ in found} == {0}
    assert all(first == again for _, first, again in found)
    assert len({number for _, number, _ in found}) == 8
    assert 0 not in {number for _, number, _ in found}


def test_what_a_thread_had_goes_with_it() -> None:
    context = DeviceContext(shared=True)
    context.add(key(thread=context.thread()), "mine")

    def run() -> None:
        context.add(key(thread=context.thread()), "theirs")
        assert context.statistics().instances == 2

    for _ in range(3):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(BOUND_S)
        assert context.statistics().instances == 1
    assert context.find(key(thread=context.thread())) == "mine"


def test_many_threads_at_once_lose_and_miscount_nothing() -> None:
    context = DeviceContext(shared=True)

    def run(_: int) -> int:
        mine = context.thread()
        return sum(context.find_or_add(key(str(n % 10), thread=mine), lambda: mine) == mine for n in range(1000))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(8), timeout=BOUND_S)) == [1000] * 8
        statistics = context.statistics()
    assert statistics.found + statistics.created == 8000
    assert statistics.created % 10 == 0
