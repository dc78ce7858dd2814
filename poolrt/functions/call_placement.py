"""Which ring takes the next calls, unless a row goes on at one: that with the shortest queue. The caller locks the rings."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from .call_order import place_in_order
from .client_call_ring import ClientCallRing, Waiting
from .ordered_queue import OrderedQueue
from .wake_ups import wake_workers

#: Calls that one worker gets before another one does, while others wait.
_FILL: Final = 16


def choose_ring(rings: Iterable[ClientCallRing], function: int) -> ClientCallRing | None:
    """Return the ring with the shortest queue that takes a function, None if there is none."""
    best: ClientCallRing | None = None
    for ring in rings:
        if function in ring.functions and (best is None or len(ring.calls) < len(best.calls)):
            best = ring
    return best


def place_waiting(rings: Collection[ClientCallRing], waiting: Waiting, processors: int, *, later: bool = False) -> None:
    """Give calls that wait to the rings that have room, evenly, and wake workers as `wake_workers` says."""
    if isinstance(waiting, OrderedQueue):
        place_in_order(rings, waiting)
        return
    while waiting:
        call = waiting[0]
        if call.ring is not None:
            # An interrupt has ended this before or after it was published.
            if call.ring.holds(call):
                waiting.popleft()
            else:
                call.ring.repair(waiting)
                call.ring = None
            continue
        ring = choose_ring(rings, call.number)
        if ring is None or not ring.fill(waiting, min(_FILL, -(-len(waiting) // len(rings)))):
            break
    wake_workers(rings, processors, later=later)
