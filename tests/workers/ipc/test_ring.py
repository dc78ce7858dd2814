"""A ring between a client and a worker: each entry ends once, and no content of the memory does harm."""

from __future__ import annotations

import random
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrt.workers.ipc.ring import (
    CAPACITY,
    CHANGING,
    EXECUTED,
    NBYTES,
    OPEN,
    PAUSED,
    RETURNED,
    SLOTS_LIMIT,
    SUBMITTED,
    MalformedRing,
    ServingRing,
    SubmittingRing,
)

from .between_lines import between_lines

_NUMBER = 7


def make_ring() -> tuple[bytearray, SubmittingRing, ServingRing]:
    memory = bytearray(NBYTES)
    return memory, SubmittingRing(_NUMBER, memory), ServingRing(_NUMBER, memory)


def test_entries_arrive_in_order_and_whole_also_around_the_end_of_the_memory() -> None:
    _, client, worker = make_ring()
    for number in range(1, 3 * CAPACITY):
        inputs, outputs = list(range(number % 5)), list(range(number % 7))
        assert client.append(number * 3, inputs, outputs) == number
        entry = worker.take()
        assert entry == (number, number * 3, tuple(inputs), tuple(outputs))
        assert (client.taken, client.done) == (number, number - 1)
        worker.complete(EXECUTED)
        assert (client.done, client.status(number)) == (number, EXECUTED)
    assert worker.take() is None


def test_a_run_with_as_many_tensors_as_fit_leaves_the_next_entry_whole() -> None:
    _, client, worker = make_ring()
    slots = [(1 << 62) + slot for slot in range(SLOTS_LIMIT)]
    for _ in range(CAPACITY):
        client.append(1, slots[:10], slots[10:])
    for number in range(CAPACITY):
        assert worker.take() == (number + 1, 1, tuple(slots[:10]), tuple(slots[10:]))
        worker.complete(EXECUTED)


def test_a_paused_ring_returns_what_came_before_and_meanwhile() -> None:
    _, client, worker = make_ring()
    client.append(1, [], [])
    assert worker.pause()
    assert (client.state, client.done, client.status(1)) == (PAUSED, 1, RETURNED)
    client.append(1, [], [])
    assert worker.resume()
    assert (client.state, client.done, client.status(2)) == (OPEN, 2, RETURNED)
    client.append(1, [], [])
    entry = worker.take()
    assert entry is not None
    assert entry.sequence == 3


@settings(deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, NBYTES // 8 - 1), st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 2 * CAPACITY))),
        min_size=1,
        max_size=40,
    ),
    entries=st.integers(0, CAPACITY),
)
def test_no_content_of_the_memory_raises_anything_but_malformed_ring(
    changes: list[tuple[int, int]], entries: int
) -> None:
    memory, client, worker = make_ring()
    for _ in range(entries):
        client.append(1, [128], [256])
    words = memoryview(memory).cast("Q")
    for place, value in changes:
        words[place] = value
    try:
        for _ in range(CAPACITY + 1):
            entry = worker.take()
            if entry is None:
                break
            assert len(entry.inputs) + len(entry.outputs) <= SLOTS_LIMIT
            worker.complete(EXECUTED)
        else:
            raise AssertionError("a worker takes no more entries than the ring has")
        worker.pause()
        worker.resume()
    except MalformedRing:
        pass


@pytest.mark.parametrize("submitted", [CAPACITY + 1, 2**64 - 1])
def test_more_entries_than_there_is_room_for_are_refused(submitted: int) -> None:
    memory, _, worker = make_ring()
    memoryview(memory).cast("Q")[8] = submitted
    with pytest.raises(MalformedRing, match="entries"):
        worker.take()


def test_a_client_cannot_make_a_worker_take_an_entry_twice() -> None:
    memory, client, worker = make_ring()
    client.append(1, [], [])
    worker.take()
    worker.complete(EXECUTED)
    memoryview(memory).cast("Q")[8] = 0
    with pytest.raises(MalformedRing):
        worker.take()


def test_each_entry_is_executed_or_returned_once_while_the_worker_pauses_at_random() -> None:
    """The client decides from the state alone that an entry is returned; then the worker never executes it."""
    _, client, worker = make_ring()
    executed: list[int] = []
    stop = threading.Event()
    drawn, waits = random.Random(1), random.Random(2)

    def serve() -> None:
        while not stop.is_set() or worker.has_entries:
            if drawn.random() < 0.02:
                worker.pause()
                time.sleep(0)
                worker.resume()
            if worker.take() is not None:
                executed.append(client.taken)
                worker.complete(EXECUTED)

    thread = threading.Thread(target=serve)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    returned: list[int] = []
    done: list[int] = []
    begin = time.monotonic()
    # On a busy machine it takes a while until both have happened.
    while (spent := time.monotonic() - begin) < 0.4 or (spent < 20 and not (returned and done)):
        while client.submitted - client.done >= CAPACITY:
            time.sleep(0)
        sequence = client.append(1, [], [])
        while client.done < sequence:
            state = client.state
            if state == PAUSED and client.done < sequence:
                returned.append(sequence)
                # Else, while others have the processor, each pause would fill the ring, and the next come before its end.
                while client.state == PAUSED and waits.random() < 0.9:
                    time.sleep(0)
                break
            if state == CHANGING:
                time.sleep(0)
        else:
            (done if client.status(sequence) == EXECUTED else returned).append(sequence)
    stop.set()
    thread.join(10)
    sys.setswitchinterval(before)
    assert not thread.is_alive()
    assert executed == done
    assert sorted(done + returned) == list(range(1, client.submitted + 1))
    assert returned
    assert done


def test_a_client_that_publishes_for_ever_does_not_keep_its_worker_from_pausing() -> None:
    # Given a client that publishes entries as soon as others are done, until the worker is kept for long
    _, client, worker = make_ring()
    last = worker.done

    def publish() -> None:
        if client.done < last + 3 * CAPACITY:
            client.words[SUBMITTED] = client.done + CAPACITY

    for act in (worker.pause, worker.resume):
        last = worker.done
        # When the worker returns the entries that it finds
        with between_lines(publish):
            act()
        # Then it returns no more than a ring has
        assert worker.done - last == CAPACITY


def test_a_side_rings_once_for_each_sleep_of_the_other() -> None:
    _, client, worker = make_ring()
    client.append(1, [], [])
    assert not client.must_ring(), "the worker does not sleep"
    assert not worker.sleep(), "there is an entry"
    worker.awake()
    worker.take()
    worker.complete(EXECUTED)
    assert not worker.must_ring(), "the client does not sleep"
    assert not client.sleep_until(1), "the entry is done"
    client.awake()
    assert worker.sleep()
    for _ in range(3):
        client.append(1, [], [])
    sleep = client.must_ring()
    assert sleep
    client.note_rung(sleep)
    assert not client.must_ring()
    worker.awake()
    assert client.sleep_until(4)
    rung = []
    while worker.take() is not None:
        worker.complete(EXECUTED)
        rung.append(worker.must_ring())
    assert rung == [False, False, True]
    assert not worker.must_ring()
    client.awake()
    assert worker.sleep()
    client.append(1, [], [])
    assert client.must_ring()


def test_an_entry_that_is_withdrawn_before_it_begins_is_returned_and_the_next_is_taken() -> None:
    _, client, worker = make_ring()
    for _ in range(3):
        client.append(1, [], [])
    assert client.withdraw(2)
    for sequence in (1, 3):
        entry = worker.take()
        assert entry is not None
        assert entry.sequence == sequence
        assert not client.withdraw(sequence), "it has begun"
        worker.complete(EXECUTED)
    assert [client.status(sequence) for sequence in (1, 2, 3)] == [EXECUTED, RETURNED, EXECUTED]
    for _ in range(CAPACITY):
        client.append(1, [], [])
        assert worker.take() is not None
        worker.complete(EXECUTED)


@pytest.mark.parametrize("total", [5_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_no_entry_is_executed_that_the_client_has_withdrawn_while_the_worker_takes_them(total: int) -> None:
    _, client, worker = make_ring()
    executed: set[int] = set()
    withdrawn: set[int] = set()

    def serve() -> None:
        while client.done < total:
            entry = worker.take()
            if entry is not None:
                executed.add(entry.sequence)
                worker.complete(EXECUTED)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        while client.submitted < total:
            if client.submitted - client.done < CAPACITY:
                sequence = client.append(1, [], [])
                if sequence % 3 and client.done < sequence and client.withdraw(sequence):
                    withdrawn.add(sequence)
        thread.join(30)
    finally:
        sys.setswitchinterval(before)
    assert not thread.is_alive()
    assert withdrawn
    assert executed
    assert not executed & withdrawn
    returned = {*range(1, total + 1)} - executed
    assert withdrawn <= returned
