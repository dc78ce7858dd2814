"""Call rings: each entry is called once or taken back, and no content of the memory does anything else."""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import time

import numpy as np
import pytest

from poolrt.workers.ipc.call_ring import (
    BY_MESSAGE,
    CAPACITY,
    DATA_BYTES,
    INLINE_BYTES,
    NBYTES,
    RETURNED,
    TAKEN_BACK,
    ServingCallRing,
    SubmittingCallRing,
)
from poolrt.workers.ipc.gate import NBYTES as GATE_BYTES
from poolrt.workers.ipc.gate import Gate, WorkerGate
from poolrt.workers.ipc.ring import MalformedRing

from .between_lines import between_lines


def _sides() -> tuple[SubmittingCallRing, ServingCallRing]:
    memory = bytearray(NBYTES)
    return SubmittingCallRing(7, memory), ServingCallRing(7, memory)


def test_arguments_and_results_of_any_size_pass_in_order_while_the_space_is_used_again() -> None:
    client, worker = _sides()
    generator = random.Random(3)
    expected: list[tuple[int, bytes]] = []
    seen = 0
    for number in range(5000):
        arguments = generator.randbytes(generator.choice((0, 1, 40, 87, 88, 89, 103, 104, 105, 3000, INLINE_BYTES)))
        sequence = client.append(5, number, arguments)
        if sequence:
            client.publish(sequence)
            expected.append((number, arguments))
        if not sequence or generator.random() < 0.3:
            for _ in range(generator.randrange(1, 5)):
                entry = worker.take()
                if entry is None:
                    break
                assert (entry.request, entry.arguments) == expected[entry.sequence - 1]
                if not worker.complete(RETURNED, entry.arguments[::-1]):
                    assert worker.complete(BY_MESSAGE)
        while client.consumed < client.done and generator.random() < 0.8:
            status, value = client.outcome(client.consumed + 1)
            assert status == BY_MESSAGE or bytes(value) == expected[client.consumed][1][::-1]
            client.consume(client.consumed + 1)
            seen += 1
    assert seen > 1000


def test_a_full_ring_takes_no_entry_and_a_long_result_is_refused() -> None:
    client, worker = _sides()
    for number in range(CAPACITY):
        client.publish(client.append(1, number, b"x"))
    assert client.append(1, 99, b"x") == 0
    assert worker.take() is not None
    assert not worker.complete(RETURNED, bytes(INLINE_BYTES + 1))
    assert worker.complete(RETURNED, b"y")
    client.consume(1)
    assert client.append(1, 99, b"x") == CAPACITY + 1
    other, _ = _sides()
    accepted = 0
    while other.append(1, 1, bytes(INLINE_BYTES)):
        accepted += 1
    assert accepted == DATA_BYTES // INLINE_BYTES


def _serve(memory: object, calls: int) -> None:
    """Count each call of an entry in a table, at random speed."""
    words = np.frombuffer(memory, np.uint8)  # type: ignore[call-overload]
    ring = ServingCallRing(7, words[: NBYTES + 0].data)
    table = words[NBYTES:].view(np.uint32)
    generator = random.Random(os.getpid())
    seen = 0
    while seen < calls:
        if not ring.has_entries:
            time.sleep(0)
            continue
        entry = ring.take()
        if entry is not None:
            table[entry.request] += 1
            if generator.random() < 0.2:
                time.sleep(0.00002)
            ring.complete(RETURNED)
        seen = ring.done


def test_an_entry_that_is_taken_back_is_never_called_and_each_other_one_is_called_once() -> None:
    calls = 6000
    memory = multiprocessing.get_context("fork").RawArray("B", NBYTES + 4 * calls + 4096)
    words = np.frombuffer(memory, np.uint8)
    client = SubmittingCallRing(7, words[:NBYTES].data)
    table = words[NBYTES:].view(np.uint32)
    worker = multiprocessing.get_context("fork").Process(target=_serve, args=(memory, calls), daemon=True)
    worker.start()
    generator = random.Random(11)
    certain: set[int] = set()
    asked: set[int] = set()
    returned: set[int] = set()
    submitted = 0
    deadline = time.monotonic() + 60
    while client.consumed < calls and time.monotonic() < deadline:
        for _ in range(generator.randrange(4)):
            if submitted < calls and (sequence := client.append(1, submitted, b"")):
                client.publish(sequence)
                submitted += 1
        if generator.random() < 0.5 and client.submitted > client.done:
            first = max(client.done + 1, client.submitted - generator.randrange(6))
            wanted = range(first, client.submitted + 1)
            count = client.take_back(wanted)
            asked.update(wanted)
            certain.update(wanted[len(wanted) - count :])
        while client.consumed < client.done:
            if client.outcome(client.consumed + 1)[0] == TAKEN_BACK:
                returned.add(client.consumed + 1)
            client.consume(client.consumed + 1)
    worker.join(10)
    assert client.consumed == calls
    assert certain <= returned <= asked
    assert len(certain) > 50
    assert [int(count) for count in table[:calls]] == [int(n + 1 not in returned) for n in range(calls)]


def test_a_worker_has_no_entry_while_the_next_one_is_held() -> None:
    # Given five entries, of which the worker calls the first one, and the fourth is taken back
    client, worker = _sides()
    for number in range(5):
        client.publish(client.append(1, number, b"x"))
    assert worker.take() is not None
    client.take_back(range(4, 5))
    # When the client holds all from the second one on
    assert client.hold(2, 5) == 1
    assert worker.complete(RETURNED)
    # Then the worker has none, and sleeps
    assert not worker.has_entries
    assert worker.take() is None
    assert (client.taken, client.begun, client.done) == (1, 1, 1)
    assert worker.sleep()
    assert client.must_ring()
    # And goes on with the entries at their new places once they are released
    client.rearrange(2, [3, 2], 1, 1, 99, 0, b"y")
    client.release(range(2, 6), {5})
    worker.awake()
    found = []
    while (entry := worker.take()) is not None:
        found.append((entry.sequence, entry.request, entry.arguments))
        worker.complete(RETURNED)
    assert found == [(2, 2, b"x"), (3, 99, b"y"), (4, 1, b"x")]
    assert [client.outcome(sequence)[0] for sequence in range(1, 6)] == [*[RETURNED] * 4, TAKEN_BACK]


def test_an_entry_that_the_worker_has_taken_is_not_held() -> None:
    client, worker = _sides()
    for number in range(3):
        client.publish(client.append(1, number, b"x"))
    assert worker.take() is not None
    assert client.hold(1, 3) == 1
    client.release(range(1, 4), ())
    assert worker.complete(RETURNED)
    assert worker.has_entries
    entry = worker.take()
    assert entry is not None
    assert entry.request == 1


@pytest.mark.parametrize("mark", [2, 2**63, 2**63 + 2, 2**64 - 1])
def test_a_mark_that_no_client_writes_is_refused(mark: int) -> None:
    client, worker = _sides()
    client.publish(client.append(1, 1, b"x"))
    client.hold(1, 1)
    looks = [worker.has_entries]
    client._words[client._words.tolist().index(1 + 2**63)] = mark
    looks.append(worker.has_entries)
    assert looks == [False, True]
    with pytest.raises(MalformedRing, match="unexpected mark"):
        worker.take()


def test_a_client_that_takes_entries_back_for_ever_does_not_keep_its_worker() -> None:
    # Given a client that keeps all places full of entries that are taken back, until the worker is kept for long
    client, worker = _sides()

    def take_back() -> None:
        done = client.done
        if done < 3 * CAPACITY:
            client.take_back(range(done + 1, done + CAPACITY + 1))
            client.publish(done + CAPACITY)

    # When the worker looks for an entry
    with between_lines(take_back):
        entry = worker.take()
    # Then it passes no more than a ring has
    assert entry is None
    assert worker.done == CAPACITY


def test_no_content_of_the_memory_raises_anything_but_malformed_ring() -> None:
    generator = np.random.default_rng(17)
    wild = [0, 1, 2, 64, 65, 10**6, 2**63, 2**64 - 1]
    refused = 0
    for attempt in range(3000):
        memory = bytearray(NBYTES)
        client, worker = SubmittingCallRing(7, memory), ServingCallRing(7, memory)
        client.publish(client.append(3, 9, b"abc"))
        words = memoryview(memory).cast("Q")
        places = generator.choice([8, 9, 10, 16, 17, 18, 64, *range(128, 136)], generator.integers(1, 4))
        for place in places:
            words[int(place)] = wild[int(generator.integers(len(wild)))]
        if attempt % 10 == 0:
            memory[:] = generator.integers(0, 256, NBYTES, np.uint8).tobytes()
        try:
            for _ in range(3):
                entry = worker.take()
                if entry is None:
                    break
                assert len(entry.arguments) <= INLINE_BYTES
                worker.complete(RETURNED, b"result")
                worker.must_ring()
        except MalformedRing:
            refused += 1
    assert 300 < refused < 3000


def test_a_sleeping_side_is_rung_for_once() -> None:
    client, worker = _sides()
    assert worker.sleep()
    client.publish(client.append(1, 1, b""))
    assert client.must_ring()
    assert not client.must_ring()
    worker.awake()
    assert not worker.sleep()
    worker.awake()
    client.sleep_until(1)
    worker.take()
    assert not worker.must_ring()
    worker.complete(RETURNED)
    assert worker.must_ring()
    assert not worker.must_ring()


def test_a_dozing_worker_is_rung_for_by_a_client_that_waits_or_has_many_entries() -> None:
    client, worker = _sides()
    assert worker.sleep(dozes=True)
    client.publish(client.append(1, 1, b""))
    assert not client.must_ring(waits=False)
    assert client.must_ring()
    assert not client.must_ring()
    worker.awake()
    assert worker.take() is not None
    worker.complete(RETURNED)
    assert worker.sleep(dozes=True)
    rung = []
    for number in range(2, 40):
        client.publish(client.append(1, number, b""))
        if client.must_ring(waits=False):
            rung.append(number)
    assert rung == [17]  # sixteen entries wait then
    worker.awake()
    while worker.take() is not None:
        worker.complete(RETURNED)
    assert worker.sleep()
    client.consume(39)
    client.publish(client.append(1, 40, b""))
    assert client.must_ring(waits=False)  # a sleep without an end


def test_a_worker_sees_whether_its_client_has_read_all_results() -> None:
    client, worker = _sides()
    client.publish(client.append(1, 1, b""))
    found = [worker.has_unread]
    assert worker.take() is not None
    found.append(worker.has_unread)  # the call has not ended
    worker.complete(RETURNED)
    found.append(worker.has_unread)
    client.consume(1)
    assert [*found, worker.has_unread] == [False, False, True, False]


def test_a_dozing_worker_is_rung_for_when_few_entries_take_long() -> None:
    client, worker = _sides()
    worker.note_pace(40_000)
    assert worker.sleep(dozes=True)
    rung = []
    for number in range(1, 5):
        client.publish(client.append(1, number, b""))
        rung.append(client.must_ring(waits=False))
    assert rung == [False, False, True, False]


def test_a_gate_lets_a_job_or_calls_go_on_but_never_both() -> None:
    memory = bytearray(GATE_BYTES)
    gate, worker = Gate(memory), WorkerGate(memory)
    assert worker.may_enter()
    assert worker.enter()
    assert not gate.close()  # the job waits until FREE
    assert worker.leave()
    assert gate.close()
    assert not worker.may_enter()
    assert not worker.enter()
    assert worker.leave()
    assert gate.open()  # the worker wants to call: GO
    assert not gate.close()
    worker.take_turn()
    assert worker.enter()
    assert worker.leave()
    assert gate.close()
    assert not gate.open()


@pytest.mark.parametrize("seed", range(3))
def test_a_gate_keeps_jobs_and_calls_apart_in_any_order_of_two_threads(seed: int) -> None:
    memory = bytearray(GATE_BYTES)
    gate, worker = Gate(memory), WorkerGate(memory)
    inside: list[str] = []
    freed = threading.Event()
    over = threading.Event()
    wrong: list[list[str]] = []

    def enter(name: str) -> None:
        inside.append(name)
        if len(inside) > 1:
            wrong.append([*inside])
        inside.remove(name)

    def call() -> None:
        while not over.is_set():
            if not worker.may_enter():
                time.sleep(0)
            if worker.enter():
                worker.count()
                enter("call")
            if worker.leave():
                freed.set()

    thread = threading.Thread(target=call)
    thread.start()
    generator = random.Random(seed)
    jobs = 0
    until = time.monotonic() + 20
    while jobs < 300 and time.monotonic() < until:
        if gate.close() or (freed.wait(1) and not gate.is_calling):
            enter("job")
            jobs += 1
        freed.clear()
        if gate.open():
            worker.take_turn()
        if generator.random() < 0.1:
            time.sleep(0.0001)
    over.set()
    thread.join(5)
    assert jobs == 300
    assert not wrong
    assert gate.calls > 0
