"""Calls in order of priority, beside a worker process that takes them meanwhile: each is called once, as it was submitted."""

from __future__ import annotations

import multiprocessing
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrt.functions.client_call_ring import ClientCallRing
from poolrt.functions.ordered_queue import OrderedQueue
from poolrt.functions.ring_call import RingCall
from poolrt.priorities import OVERTAKEN_LIMIT
from poolrt.workers.ipc.call_ring import (
    CAPACITY,
    INLINE_BYTES,
    NBYTES,
    RETURNED,
    TAKEN_BACK,
    ServingCallRing,
    SubmittingCallRing,
)


def _arguments(request: int) -> bytes:
    length = random.Random(request).choice((0, 3, 87, 88, 89, 200, 5000, INLINE_BYTES))
    return bytes([request % 251]) * length


def _call(request: int, priority: int, arguments: bytes | None = None) -> RingCall:
    call = RingCall(1, _arguments(request) if arguments is None else arguments, 0, None, None)
    call.request, call.priority = request, priority
    return call


def _serve(memory: object, calls: int) -> None:
    """Count each call in a table, and a wrong one as a hundred, at random speed, until the table is full.

    Behind that, the calls are noted in the order in which they begin.
    """
    words = np.frombuffer(memory, np.uint8)  # type: ignore[call-overload]
    ring = ServingCallRing(7, words[:NBYTES].data)
    table = words[NBYTES:].view(np.uint32)
    generator = random.Random(5)
    until = time.monotonic() + 100
    begun = 0
    while not table[calls] and time.monotonic() < until:
        entry = ring.take()
        if entry is None:
            time.sleep(0)
            continue
        table[entry.request] += 1 if entry.arguments == _arguments(entry.request) else 100
        table[calls + 1 + begun % calls] = entry.request
        begun += 1
        if generator.random() < 0.2:
            time.sleep(0.00002)
        ring.complete(RETURNED)


@contextmanager
def _client_ring(memory: object) -> Iterator[ClientCallRing]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ClientCallRing(7, SubmittingCallRing(7, memory), ours)


def _read(ring: ClientCallRing, waiting: OrderedQueue[RingCall]) -> int:
    """Read the results of a ring as `CallRings` does; return how many calls have returned."""
    returned = 0
    words = ring.ring
    while words.consumed < words.done:
        sequence = words.consumed + 1
        call = ring.calls.popleft()
        status, _ = words.outcome(sequence)
        if call is not None:
            assert call.sequence == sequence
            call.ring = None
            if status == TAKEN_BACK:
                waiting.appendleft(call)
            else:
                assert status == RETURNED
                returned += 1
        words.consume(sequence)
    return returned


@contextmanager
def _beside_a_worker(calls: int) -> Iterator[tuple[ClientCallRing, np.ndarray]]:
    """Yield a ring of which another process takes calls, and a table of how often each was called and of their order."""
    memory = multiprocessing.get_context("fork").RawArray("B", NBYTES + 8 * calls + 4096)
    words = np.frombuffer(memory, np.uint8)
    table = words[NBYTES:].view(np.uint32)
    worker = multiprocessing.get_context("fork").Process(target=_serve, args=(memory, calls), daemon=True)
    worker.start()
    try:
        with _client_ring(words[:NBYTES].data) as ring:
            yield ring, table
    finally:
        table[calls] = 1
        worker.join(10)


def _place(ring: ClientCallRing, waiting: OrderedQueue[RingCall]) -> None:
    """Place calls as `place_in_order` does."""
    while waiting:
        call = waiting[0]
        if not ring.insert(call, waiting, waiting.highest):
            break
        waiting.take(call)


def test_calls_that_change_their_places_while_the_worker_takes_them_are_called_once() -> None:
    calls = 4000
    generator = random.Random(3)
    waiting: OrderedQueue[RingCall] = OrderedQueue()
    cancelled: set[int] = set()
    numbers = iter(range(calls))
    ended, deadline = 0, time.monotonic() + 80
    with _beside_a_worker(calls) as (ring, table):
        while ended + len(cancelled) < calls and time.monotonic() < deadline:
            for number in [number for _, number in zip(range(generator.randrange(4)), numbers, strict=False)]:
                waiting.append(_call(number, generator.randrange(-8, 8)))
            _place(ring, waiting)
            if generator.random() < 0.05 and (last := ring.next_call()) is not None and ring.take_back(last):
                last.ring = None
                cancelled.add(last.request)
            ended += _read(ring, waiting)
    assert ended + len(cancelled) == calls
    assert len(cancelled) > 3
    assert [int(found) for found in table[:calls]] == [int(number not in cancelled) for number in range(calls)]


def test_calls_that_change_their_places_begin_in_order_and_are_overtaken_64_times_at_most() -> None:
    calls = 3000
    generator = random.Random(9)
    waiting: OrderedQueue[RingCall] = OrderedQueue()
    # Most are urgent: the oldest of others are overtaken as often as the limit allows.
    priorities = [generator.choice((-3, 0, 0, *[7] * 20)) for _ in range(calls)]
    submitted = ended = 0
    deadline = time.monotonic() + 80
    with _beside_a_worker(calls) as (ring, table):
        while ended < calls and time.monotonic() < deadline:
            # Given rows of calls, of which the worker takes some while others go before them
            while submitted < calls and submitted - ended < 300 and generator.random() < 0.9:
                waiting.append(_call(submitted, priorities[submitted]))
                submitted += 1
                _place(ring, waiting)
            _place(ring, waiting)
            ended += _read(ring, waiting)
    begun = [int(number) for number in table[calls + 1 : 2 * calls + 1]]
    assert sorted(begun) == [*range(calls)]
    for priority in {*priorities}:
        # Then those of one priority begin in their order
        mine = [number for number in begun if priorities[number] == priority]
        assert mine == sorted(mine)
        # And as many urgent ones as the limit says overtake one that is the oldest of its priority; it may have been overtaken by
        # others of priority 0 before it was the oldest
        overtaken = 0
        waits = iter(mine)
        oldest = next(waits)
        for number in begun:
            if number == oldest:
                overtaken, oldest = 0, next(waits, calls)
            elif priorities[number] == 7 > priority and number > oldest:
                overtaken += 1
                assert overtaken <= OVERTAKEN_LIMIT


def test_a_full_ring_leaves_the_last_call_of_lower_priority_out() -> None:
    waiting: OrderedQueue[RingCall] = OrderedQueue()
    memory = bytearray(NBYTES)
    worker = ServingCallRing(7, memory)
    with _client_ring(memory) as ring:
        for number in range(CAPACITY):
            assert ring.insert(_call(number, 0, b"a%d" % number), waiting, 0)
        assert not ring.insert(_call(100, 0, b"a100"), waiting, 0)
        assert ring.insert(_call(101, 3, b"a101"), waiting, 3)
        assert [call.request for call in waiting] == [CAPACITY - 1]
        assert ring.count_before(3) == 1
        assert ring.count_before(4) == 0
        found = []
        while (entry := worker.take()) is not None:
            assert entry.arguments == b"a%d" % entry.request
            found.append(entry.request)
            worker.complete(RETURNED)
    assert found == [101, *range(CAPACITY - 1)]


def test_a_call_that_the_worker_finds_taken_back_has_not_begun() -> None:
    waiting: OrderedQueue[RingCall] = OrderedQueue()
    memory = bytearray(NBYTES)
    worker = ServingCallRing(7, memory)
    with _client_ring(memory) as ring:
        call, other = _call(1, 0, b""), _call(2, 0, b"")
        assert ring.insert(call, waiting, 0)
        assert ring.insert(other, waiting, 0)
        ring.ring.take_back(range(1, 2))
        assert worker.take() is not None
        assert not ring.has_begun(call)
        assert ring.has_begun(other)
        worker.complete(RETURNED)
        assert ring.has_begun(other)


@given(
    steps=st.lists(st.one_of(st.integers(-8, 7), st.just(None)), max_size=400),
    back=st.lists(st.integers(0, 399), max_size=20),
)
@settings(deadline=None)
def test_a_queue_has_the_order_of_its_rules(steps: list[int | None], back: list[int]) -> None:
    queue: OrderedQueue[RingCall] = OrderedQueue()
    model: list[RingCall] = []
    numbers = count()
    taken: list[RingCall] = []
    for step in steps:
        if step is not None:
            call = _call(next(numbers), step)
            queue.append(call)
            model.append(call)
        elif model:
            oldest = {call.priority: call for call in reversed(model)}
            due = [call for _, call in sorted(oldest.items()) if call.overtaken >= OVERTAKEN_LIMIT]
            expected = due[0] if due else oldest[max(oldest)]
            assert queue[0] is expected
            assert queue.highest == max(oldest)
            assert queue.popleft() is expected
            model.remove(expected)
            taken.append(expected)
        assert len(queue) == len(model)
        assert bool(queue) == bool(model)
    for number in back:
        if number < len(taken) and taken[number] not in queue:
            queue.appendleft(taken[number])
            model.append(taken[number])
    assert {*queue} == {*model}
    for priority in range(-8, 8):
        mine = [call.ticket for call in queue if call.priority == priority]
        assert mine == sorted(mine)
    for call in [*queue]:
        assert call in queue
        queue.remove(call)
    with pytest.raises(IndexError):
        queue.popleft()
    with pytest.raises(ValueError, match="no such"):
        OrderedQueue[RingCall]().remove(_call(1000, 0))
