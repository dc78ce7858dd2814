"""Which workers are woken for calls. A worker that is woken takes the processor of this thread if no other one is free.

This thread then goes on when that worker has no calls left, and meanwhile gives none to the others. So a worker that wakes by
itself soon, or is woken when this thread has submitted all or sleeps, is not woken earlier unless a processor is free.
"""

from __future__ import annotations

from collections.abc import Collection

from poolrt.workers.ipc.call_ring import SLEEPS

from .client_call_ring import ClientCallRing


def wake_workers(rings: Collection[ClientCallRing], processors: int, *, later: bool = False) -> None:
    """Wake workers that sleep beside calls. With ``later``, the caller calls `wake_all` soon.

    ``processors`` is how many this process may use.
    """
    for ring in rings:
        sleeps = ring.ring.words[SLEEPS]
        if sleeps and ring.calls and (not later or has_processor(rings, processors)):
            ring.wake(waits=False)


def wake_all(rings: Collection[ClientCallRing]) -> None:
    """Wake workers that sleep beside calls."""
    for ring in rings:
        if ring.ring.words[SLEEPS] and ring.calls:
            ring.wake(waits=True)


def has_processor(rings: Collection[ClientCallRing], processors: int) -> bool:
    """Return whether there are more processors than this thread and the workers that are awake use."""
    awake = 1
    for ring in rings:
        awake += ring.ring.is_awake
    return awake < processors
