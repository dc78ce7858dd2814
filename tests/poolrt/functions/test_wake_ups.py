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
from poolrt.workers.ipc.call_ring import NBYTES, ServingCallRing, SubmittingCallRing


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


def _count_bells(bell: socket.socket) -> int:
    try:
        return len(bell.recv(64))
    except BlockingIOError:
        return 0
