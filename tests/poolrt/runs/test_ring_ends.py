"""The compiled end of a client: it publishes what Python would, wakes as often, and its waits end for all reasons."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest

from poolrt.memory.arena import make_sealed_memory
from poolrt.runs.client_ring import _LOOK_S, ClientRing
from poolrt.runs.ring_ends import CompiledEnd, RingEnds
from poolrt.workers.desc import PrimitiveAttr
from poolrt.workers.desc.operations.ring_ends import RingEnds as RingEndsDesc
from poolrt.workers.engines.target import cpu_target, host_isa
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.ipc.processors import Spin
from poolrt.workers.ipc.ring import CAPACITY, EXECUTED, NBYTES, RETURNED, SLOTS_LIMIT, ServingRing, SubmittingRing
from poolrt.workers.kernels.native import ring_words
from poolrt.workers.memory.arena_view import ArenaView
from tests.workers.compiled import creator

_NUMBER: Final = 9
_BOUND_S: Final = 20


class _Pair:
    """Both sides of a ring, and the client's compiled end."""

    def __init__(self, ends: RingEnds, spin_us: int = 0) -> None:
        memory = make_sealed_memory("test", NBYTES)
        self.view = ArenaView(memory)
        os.close(memory)
        buffer = self.view.buffer(0, NBYTES)
        self.client, self.worker = SubmittingRing(_NUMBER, buffer), ServingRing(_NUMBER, buffer)
        self.bell, self.far = socket.socketpair()
        self.bell.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, int(_LOOK_S * 1e6)))
        self.far.settimeout(_BOUND_S)
        self.end = CompiledEnd(ends, self.client, self.view.address, self.bell.fileno(), spin_us)

    def submit(self) -> int:
        sequence = self.client.submitted + 1
        self.end.submit(sequence, 3, [128], [256, 384])
        return sequence

    def serve(self, count: int = 1) -> None:
        """Execute entries as a worker, sleeping for each, and wake the client if it sleeps."""
        for _ in range(count):
            while self.worker.take() is None:
                if self.worker.sleep():
                    assert self.far.recv(1)
                self.worker.awake()
            self.worker.complete(EXECUTED)
            if self.worker.must_ring():
                self.far.send(b"\0")

    def close(self) -> None:
        self.bell.close()
        self.far.close()


@pytest.fixture(scope="module")
def ends() -> RingEnds:
    return RingEnds(creator().create(primitive_desc(RingEndsDesc(), PrimitiveAttr(), cpu_target(host_isa()))))


@pytest.fixture
def pair(ends: RingEnds) -> Iterator[_Pair]:
    with closing(_Pair(ends)) as made:
        yield made


def test_entries_arrive_as_they_were_submitted_also_around_the_end_of_the_memory(pair: _Pair) -> None:
    for number in range(1, 3 * CAPACITY):
        inputs = [(1 << 62) + each for each in range(number % (SLOTS_LIMIT + 1))]
        outputs = [*range(SLOTS_LIMIT - len(inputs))]
        pair.end.submit(number, 3 * number, inputs, outputs)
        assert pair.worker.take() == (number, 3 * number, tuple(inputs), tuple(outputs))
        pair.worker.complete(EXECUTED)
        assert pair.end.wait(number) == ring_words.FINISHED


def test_a_worker_is_woken_once_for_each_sleep_whoever_submits(pair: _Pair) -> None:
    pair.submit()
    pair.far.setblocking(False)
    with pytest.raises(BlockingIOError):
        pair.far.recv(100)
    for _ in range(3):
        while pair.worker.take() is not None:
            pair.worker.complete(EXECUTED)
        assert pair.worker.sleep()
        pair.submit()
        assert not pair.client.must_ring()
        pair.submit()
        assert len(pair.far.recv(100)) == 1
        pair.worker.awake()


@pytest.mark.parametrize("spin_us", [0, 50])
def test_runs_end_one_after_the_other(ends: RingEnds, spin_us: int) -> None:
    with closing(_Pair(ends, spin_us)) as pair:
        thread = threading.Thread(target=pair.serve, args=(500,))
        thread.start()
        for _ in range(500):
            sequence = pair.submit()
            until = time.monotonic() + _BOUND_S
            while pair.client.done < sequence:
                # A bell may come when the client has seen the end of its run: it ends the wait for the next one.
                assert pair.end.wait(sequence) in (ring_words.FINISHED, ring_words.ENDED, ring_words.PASSED)
                assert time.monotonic() < until
            assert pair.client.status(sequence) == EXECUTED
        thread.join(_BOUND_S)
        assert not thread.is_alive()
        assert pair.client.done == 500


def test_a_wait_says_where_it_runs_and_wakes_the_worker_unless_the_run_has_ended(ends: RingEnds) -> None:
    with closing(_Pair(ends, 50)) as pair:
        pair.far.setblocking(False)
        for ended in (True, False):
            sequence = pair.submit()
            assert pair.worker.take() is not None
            if ended:
                pair.worker.complete(EXECUTED)
                assert pair.worker.sleep()
            else:
                pair.worker.sleep()
            pair.client.note_processor(_NUMBER << 20)
            found = pair.end.wait(sequence)
            pair.worker.awake()
            assert found == (ring_words.FINISHED if ended else ring_words.PASSED)
            assert (pair.worker.client_ran == _NUMBER << 20) == ended
            if ended:
                with pytest.raises(BlockingIOError):
                    pair.far.recv(100)
        assert len(pair.far.recv(100)) == 1


def test_a_wait_says_of_executed_entries_only_that_they_have_finished(pair: _Pair) -> None:
    for number in range(1, 3 * CAPACITY):
        status = EXECUTED if number % 5 else RETURNED
        sequence = pair.submit()
        assert pair.worker.take() is not None
        pair.worker.complete(status)
        assert pair.end.wait(sequence) == (ring_words.FINISHED if status == EXECUTED else ring_words.ENDED)
    # At the place of this one is the status of an entry that was executed long ago.
    sequence = pair.submit()
    assert pair.client.status(sequence) == EXECUTED
    pair.worker.pause()
    pair.client.words[ring_words.DONE // 8] = sequence - 1
    assert pair.end.wait(sequence) == ring_words.ENDED


def test_a_wait_returns_when_time_has_passed_and_asks_for_no_bell_then(pair: _Pair) -> None:
    sequence = pair.submit()
    assert pair.end.wait(sequence) == ring_words.PASSED
    pair.serve()
    pair.far.shutdown(socket.SHUT_WR)
    assert pair.bell.recv(1) == b"", "the worker has sent no bell"


def test_a_wait_returns_when_the_worker_has_left(pair: _Pair) -> None:
    sequence = pair.submit()
    pair.far.close()
    assert pair.end.wait(sequence) == ring_words.CLOSED


def test_a_wait_returns_when_the_ring_changes(pair: _Pair) -> None:
    pair.worker.pause()
    assert pair.end.wait(pair.submit()) == ring_words.ENDED


def test_an_interrupt_ends_a_wait(ends: RingEnds) -> None:
    """As soon as it comes, not when the wait's time is over."""
    with closing(_Pair(ends)) as pair:
        pair.bell.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", _BOUND_S, 0))
        sequence = pair.submit()
        main = threading.main_thread().ident or 0

        def interrupt() -> None:
            _wait_until_it_sleeps(pair)
            signal.pthread_kill(main, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            pair.end.wait(sequence)
            pytest.fail("the wait has returned without an interrupt")
        thread.join(_BOUND_S)
        assert time.monotonic() - begin < _BOUND_S / 2


def _wait_until_it_sleeps(pair: _Pair) -> None:
    words = memoryview(pair.view.buffer(0, NBYTES)).cast("B").cast("Q")
    while not words[ring_words.CLIENT_SLEEPS // 8]:
        time.sleep(0.001)
    time.sleep(0.05)


def test_a_closed_end_uses_its_descriptor_no_more(pair: _Pair) -> None:
    """The number may be another descriptor's by then."""
    assert pair.worker.sleep()
    pair.end.close()
    pair.submit()
    pair.far.setblocking(False)
    with pytest.raises(BlockingIOError):
        pair.far.recv(1)
    assert pair.end.wait(1) == ring_words.CLOSED


def test_closing_a_ring_closes_its_end(ends: RingEnds) -> None:
    with closing(_Pair(ends)) as pair:
        ring = ClientRing(_NUMBER, pair.client, pair.view.address, pair.bell, Spin(0))
        ring.take_ends(ends)
        assert ring.compiled is not None
        assert pair.worker.sleep()
        descriptor = pair.bell.fileno()
        other, far = socket.socketpair()
        ring.close()
        os.dup2(other.fileno(), descriptor)
        try:
            ring.compiled.submit(1, 3, [], [])
            far.setblocking(False)
            with pytest.raises(BlockingIOError):
                far.recv(1)
        finally:
            os.close(descriptor)
            other.close()
            far.close()
