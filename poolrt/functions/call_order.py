"""Calls on rings in order of priority. The caller holds the lock of the rings.

An urgent call goes into the ring of a worker before the calls of lower priorities that were not begun there. The last of these
waits in this process if the ring is full. If that worker is held up, and another one goes on, the call is taken to that one.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Final

from poolrt.cachestore.deferred_interrupts import deferred_interrupts

from .client_call_ring import ClientCallRing
from .ordered_queue import OrderedQueue
from .ring_call import RingCall

#: Seconds after which a worker that begins no call is held up.
_HELD_UP_S: Final = 0.005


def place_in_order(rings: Collection[ClientCallRing], waiting: OrderedQueue[RingCall]) -> None:
    """Give calls that wait to the workers that have the fewest before them, as far as there is room, and wake these."""
    placed: set[ClientCallRing] = set()
    while waiting:
        call = waiting[0]
        if call.ring is not None and not call.ring.holds(call):
            call.ring.repair(waiting)  # an interrupt has ended this before it was published
            call.ring = None
        ring = _choose(rings, call)
        if ring is None:
            break
        with deferred_interrupts():
            # One that was overtaken enough goes before all that wait, so it has the priority of the first of them.
            if call.ring is None and not ring.insert(call, waiting, waiting.highest):
                break
            waiting.take(call)
        placed.add(ring)
    for ring in placed:
        ring.wake(waits=False)


def lift_urgent(rings: Collection[ClientCallRing], waiting: OrderedQueue[RingCall]) -> bool:
    """Take the most urgent call back from a worker that is held up if another one has less urgent ones; return whether any is."""
    now = time.monotonic()
    for ring in rings:
        call = ring.next_call()
        begun = ring.ring.begun
        if begun != ring.lifted:
            ring.lifted, ring.lifted_at = begun, now
        if call is None or now - ring.lifted_at < _HELD_UP_S:
            continue
        for other in rings:
            if other is ring or call.number not in other.functions or now - other.lifted_at >= _HELD_UP_S:
                continue
            lower = other.next_call()
            if lower is not None and lower.priority < call.priority:
                with deferred_interrupts():
                    if not ring.take_back(call):
                        return False
                    call.ring = None
                    waiting.appendleft(call)
                return True
    return False


def may_lift(rings: Iterable[ClientCallRing]) -> bool:
    """Return whether workers begin calls of different priorities next."""
    following = [call.priority for ring in rings if (call := ring.next_call()) is not None]
    return len({*following}) > 1


def _choose(rings: Iterable[ClientCallRing], call: RingCall) -> ClientCallRing | None:
    """Return the ring that takes a call and has the fewest before it; among equals the one with the fewest in all.

    One whose worker is held up is the last resort.
    """
    best: ClientCallRing | None = None
    least = (False, 0, 0)
    now = time.monotonic()
    for ring in rings:
        if call.number in ring.functions:
            before = ring.count_before(call.priority)
            held_up = before > 0 and ring.lifted == ring.ring.begun and now - ring.lifted_at >= _HELD_UP_S
            rank = held_up, before, len(ring.calls)
            if best is None or rank < least:
                best, least = ring, rank
    return best
