"""Calls that move from a worker that is held up to an idle one."""

from __future__ import annotations

import socket
from collections import deque

from poolrt.functions.call_balance import take_from_busy
from poolrt.functions.client_call_ring import ClientCallRing
from poolrt.functions.ring_call import RingCall
from poolrt.workers.ipc.call_ring import _BEGUN, NBYTES, ServingCallRing, SubmittingCallRing


def test_a_worker_that_is_killed_while_it_counts_an_entry_leaves_no_calls_to_move() -> None:
    memories = [bytearray(NBYTES), bytearray(NBYTES)]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        busy, idle = (ClientCallRing(7, SubmittingCallRing(7, memory), ours) for memory in memories)
        waiting: deque[RingCall] = deque()
        # Given an entry that was taken back, and that the worker has counted as done, but not as begun
        call = RingCall(1, b"", 0, None, None)
        call.request = 1
        assert busy.append(call, waiting)
        assert busy.take_back(call)
        assert ServingCallRing(7, memoryview(memories[0])).take() is None
        memoryview(memories[0]).cast("Q")[_BEGUN] = 0
        assert (busy.ring.begun, busy.ring.done) == (0, 1)
        busy.calls.popleft()
        busy.ring.consume(1)
        # When calls are looked for, long after the worker has begun anything
        busy.seen, busy.seen_at = 0, 0.0
        # Then there are none
        assert not take_from_busy([busy, idle], waiting)
        assert not waiting
