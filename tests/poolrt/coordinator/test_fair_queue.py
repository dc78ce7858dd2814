"""Owners of graphs take turns."""

from __future__ import annotations

from poolrt.coordinator.fair_queue import FairQueue


def taken(queue: FairQueue[str, int], now: float = 0.0) -> list[int]:
    found = []
    while (item := queue.take(now)) is not None:
        found.append(item[1])
    return found


def test_owners_take_turns_and_each_keeps_its_order() -> None:
    queue = FairQueue[str, int]()
    for item in (1, 2, 3):
        queue.put("a", item)
    assert queue.take(0.0) == ("a", 1)
    queue.put("b", 10)
    queue.put("c", 20)
    queue.put("b", 11)
    assert taken(queue) == [2, 10, 20, 3, 11]
    assert queue.take(0.0) is None
    assert not queue
    queue.put("a", 4)
    assert queue
    assert taken(queue) == [4]


def test_an_owner_is_delayed_and_keeps_its_turn() -> None:
    queue = FairQueue[str, int]()
    for owner, item in (("a", 1), ("b", 10), ("a", 2), ("b", 11)):
        queue.put(owner, item)
    queue.delay("a", 5.0)
    queue.delay("a", 4.0)  # the longer delay counts
    queue.delay("nobody here", 1.0)
    assert taken(queue, 4.5) == [10, 11]
    assert queue.next_time() == 5.0
    queue.put("b", 12)
    assert taken(queue, 5.0) == [1, 12, 2]
    assert queue.next_time() is None
