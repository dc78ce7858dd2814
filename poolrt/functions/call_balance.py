"""Calls that move from a worker that is held up to an idle one. The caller holds the lock of the rings."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

from .call_order import lift_urgent, may_lift
from .client_call_ring import ClientCallRing, Waiting
from .ordered_queue import OrderedQueue

#: Seconds after which a worker that begins no call counts as held up.
STALL_S: Final = 0.01
#: Seconds after which a call is longer than those before it, so that further ones are better called by an idle worker.
HELD_S: Final = 0.001
#: Nanoseconds of calls in a queue that are worth a wake-up of an idle worker.
_WORTH_NS: Final = 100_000


def has_calls_to_move(rings: Collection[ClientCallRing], waiting: Waiting) -> bool:
    """Return whether calls that no worker has begun wait beside an idle worker, or one with less urgent ones."""
    idle = stalls = False
    for ring in rings:  # no generator, in whose end an interrupt is dropped
        idle |= not ring.calls
        stalls |= ring.ring.submitted > ring.ring.begun
    return (idle and stalls) or (isinstance(waiting, OrderedQueue) and may_lift(rings))


def take_from_busy(rings: Collection[ClientCallRing], waiting: Waiting) -> bool:
    """Move half of the calls that no worker has begun from a long queue to ``waiting`` if a worker is idle; return if any do."""
    idle = None
    for ring in rings:
        if not ring.calls:
            idle = ring
            break
    if idle is None:
        return isinstance(waiting, OrderedQueue) and lift_urgent(rings, waiting)
    busy = max(rings, key=lambda ring: len(ring.calls))
    words = busy.ring
    if words.submitted - words.consumed != len(busy.calls):
        return False  # `repair` is due
    # A worker counts an entry that was taken back as done first, and may be killed before it counts it as begun.
    begun, now = max(words.begun, words.consumed), time.monotonic()
    if begun != busy.seen:
        busy.seen, busy.seen_at = begun, now
    stood_s = now - busy.seen_at
    # The last call of a worker that is about to take it stays.
    stalls = begun > words.done or stood_s > STALL_S / 2
    count = (words.submitted - begun + stalls) // 2
    # The calls of an idle worker may have become longer, too.
    pace = max(words.pace, idle.ring.pace)
    if count < 1 or (0 < count * pace < _WORTH_NS and stood_s < HELD_S / 2):
        return False
    sequences = range(words.submitted - count + 1, words.submitted + 1)
    moved = [busy.calls[sequence - words.consumed - 1] for sequence in sequences]
    if any(call is not None and call.number not in idle.functions for call in moved):
        return False
    certain = words.take_back(sequences)
    for sequence in reversed(sequences[len(sequences) - certain :]):
        call = busy.calls[sequence - words.consumed - 1]
        if call is not None:
            # In this order: after an interrupt, the worker says that the entry was taken back.
            waiting.appendleft(call)
            busy.calls[sequence - words.consumed - 1] = None
            call.ring = None
    return certain > 0
