"""Bells before the publication of a run: one for each sleep, none for a while if they come too early, and no run without one."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Final

import pytest

from poolrt.memory.arena import make_sealed_memory
from poolrt.runs.client_ring import ClientRing
from poolrt.runs.early_bell import _LEAST, _MOST
from poolrt.workers.ipc.processors import Spin
from poolrt.workers.ipc.ring import EXECUTED, NBYTES, ServingRing, SubmittingRing
from poolrt.workers.memory.arena_view import ArenaView

_NUMBER: Final = 9


class _Pair:
    """A client's end of a ring, and a worker that sleeps when a test says so."""

    def __init__(self) -> None:
        memory = make_sealed_memory("test", NBYTES)
        self._view = ArenaView(memory)
        os.close(memory)
        buffer = self._view.buffer(0, NBYTES)
        self._submitting = SubmittingRing(_NUMBER, buffer)
        self.worker = ServingRing(_NUMBER, buffer)
        bell, self._far = socket.socketpair()
        self.ring = ClientRing(_NUMBER, self._submitting, self._view.address, bell, Spin(0))

    def bells(self) -> int:
        """Receive the bells that have come; return how many."""
        try:
            return len(self._far.recv(256, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return 0

    def run(self, *, worker_looks: bool) -> int:
        """Begin a run as a client does, beside a worker that has found nothing after the early bell, or still wakes up.

        The worker executes it and sleeps again. Return how many bells came.
        """
        early = self.ring.early_bell
        sleep = early.ring(self.ring)
        if worker_looks and sleep:
            self.worker.awake()
            self.worker.sleep()
        self._submitting.append(3, [128], [256])
        if sleep:
            early.note(self.ring, sleep)
        self.ring.wake()
        found = self.bells()
        self.worker.awake()
        assert self.worker.take() is not None
        self.worker.complete(EXECUTED)
        assert self.worker.sleep()
        return found

    def close(self) -> None:
        self.ring.close()
        self._far.close()


@pytest.fixture
def pair() -> Iterator[_Pair]:
    made = _Pair()
    yield made
    made.close()


def test_a_sleeping_worker_is_rung_for_once_before_a_run_is_published(pair: _Pair) -> None:
    # Given a worker that sleeps
    assert pair.worker.sleep()
    # When a run is about to begin
    sleep = pair.ring.early_bell.ring(pair.ring)
    # Then it is rung for, and neither the next thread nor the publication ring again
    assert sleep
    assert pair.bells() == 1
    assert pair.ring.early_bell.ring(pair.ring) == 0
    pair.ring.wake()
    assert pair.bells() == 0


def test_an_awake_worker_is_not_rung_for(pair: _Pair) -> None:
    assert pair.worker.sleep()
    pair.worker.awake()
    assert pair.ring.early_bell.ring(pair.ring) == 0
    assert pair.bells() == 0


def test_a_worker_that_has_slept_again_is_rung_for_after_the_publication(pair: _Pair) -> None:
    assert pair.worker.sleep()
    assert pair.run(worker_looks=True) == 2


def test_early_bells_pause_for_longer_each_time_that_they_come_too_early(pair: _Pair) -> None:
    assert pair.worker.sleep()
    pause = _LEAST
    while pause < 2 * _MOST:
        # Given a worker that finds nothing after an early bell
        assert pair.run(worker_looks=True) == 2
        # Then the next runs ring once, after their publication
        for _ in range(min(pause, _MOST)):
            assert pair.ring.early_bell.ring(pair.ring) == 0
            assert pair.bells() == 0
        pause *= 2


def test_an_early_bell_in_time_halves_the_next_pause(pair: _Pair) -> None:
    assert pair.worker.sleep()
    # Given two bells that came too early
    for pause in (_LEAST, 2 * _LEAST):
        assert pair.run(worker_looks=True) == 2
        for _ in range(pause):
            assert pair.run(worker_looks=False) == 1
    # When one comes in time
    assert pair.run(worker_looks=False) == 1
    # Then the next one that is too early is followed by half the pause
    assert pair.run(worker_looks=True) == 2
    found = [pair.ring.early_bell.ring(pair.ring) for _ in range(2 * _LEAST + 1)]
    assert [bool(each) for each in found] == [False] * 2 * _LEAST + [True]
