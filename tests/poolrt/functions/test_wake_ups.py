"""Which workers are woken while a client submits calls: as many as there are processors for, and all at the end."""

from __future__ import annotations

import contextlib
import socket
from collections import deque

import pytest

from poolrt.functions.call_placement import place_waiting
from poolrt.functions.client_call_ring import ClientCallRing
from poolrt.functions.ring_call import RingCall
from poolrt.functions.wake_ups import wake_all
from poolrt.workers.ipc.call_ring import NBYTES, RETURNED, ServingCallRing, SubmittingCallRing


@pytest.mark.parametrize(("processors", "woken"), [(1, 0), (2, 1), (3, 2), (4, 3), (8, 3)])
def test_workers_without_a_processor_are_woken_at_the_end(processors: int, woken: int) -> None:
    rings, bells = [], []
    with contextlib.ExitStack() as stack:
        for number in range(3):
            ours, theirs = map(stack.enter_context, socket.socketpair())
            theirs.setblocking(False)
            memory = bytearray(NBYTES)
            assert ServingCallRing(number, memory).sleep()
            rings.append(ClientCallRing(number, SubmittingCallRing(number, memory), ours))
            rings[-1].functions.add(1)
            bells.append(theirs)
        waiting: deque[RingCall] = deque()
        for _ in range(3):
            for request in range(6):
                waiting.append(RingCall(1, b"", 0, None, None))
                waiting[-1].request = request
            place_waiting(rings, waiting, processors, later=True)
            assert not waiting
        assert [len(ring.calls) for ring in rings] == [6, 6, 6]
        assert [*map(_count_bells, bells)] == [1] * woken + [0] * (3 - woken)
        wake_all(rings)
        assert [*map(_count_bells, bells)] == [0] * woken + [1] * (3 - woken)


def test_a_dozing_worker_is_asked_for_at_each_fourth_entry_and_one_that_sleeps_at_each() -> None:
    memory = bytearray(NBYTES)
    worker = ServingCallRing(1, memory)
    ours, bell = socket.socketpair()
    with ours, bell:
        bell.setblocking(False)
        ring = ClientCallRing(1, SubmittingCallRing(1, memory), ours)
        rung = []
        assert worker.sleep()
        for request in range(1, 40):
            call = RingCall(1, b"", 0, None, None)
            call.request = request
            assert ring.append(call, deque())
            ring.wake_after_submission()
            if _count_bells(bell):
                rung.append(request)
            if request == 2:  # two calls have ended, and the worker dozes
                worker.awake()
                while worker.take() is not None:
                    worker.complete(RETURNED)
                assert worker.sleep(dozes=True)
        assert rung == [1, 20]  # sixteen entries wait at the eighteenth


@pytest.mark.parametrize(
    ("pace_ns", "dozes", "ended", "goes_on"),
    [
        (5_000, True, 0, True),
        (5_000, False, 0, False),  # it sleeps until it is rung for
        (0, True, 0, False),  # nobody knows how long its calls take
        (100_000, True, 0, False),
        (100_000, True, 9, True),  # only those count that have not ended
    ],
)
def test_a_row_of_short_calls_stays_with_a_worker_that_keeps_up(
    pace_ns: int, dozes: bool, ended: int, goes_on: bool
) -> None:
    memory = bytearray(NBYTES)
    worker = ServingCallRing(1, memory)
    ours, bell = socket.socketpair()
    with ours, bell:
        ring = ClientCallRing(1, SubmittingCallRing(1, memory), ours)
        for request in range(1, 11):
            call = RingCall(1, b"", 0, None, None)
            call.request = request
            assert ring.append(call, deque())
        for _ in range(ended):
            worker.take()
            worker.complete(RETURNED)
        worker.note_pace(pace_ns)
        worker.sleep(dozes=dozes)
        assert ring.goes_on == goes_on
        if goes_on:
            worker.awake()
            count = 10
            while ring.goes_on and count < 64:
                count += 1
                call = RingCall(1, b"", 0, None, None)
                call.request = count
                assert ring.append(call, deque())
            assert count == min(48, 249_999 // pace_ns + ended)


def _count_bells(bell: socket.socket) -> int:
    try:
        return len(bell.recv(64))
    except BlockingIOError:
        return 0
