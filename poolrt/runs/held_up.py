"""Runs that wait on a ring whose worker is held up: it is stopped, gets no processor, or executes a long run.

If another worker gets on, they are withdrawn, and their callers send them as messages, which the coordinator gives to
workers that are not held up. A worker that has nothing to do shows that it gets on by returning an entry that is withdrawn
from the beginning: one that is stopped too does not.

Guarantees: a run is withdrawn only if its worker has not begun it and never will (`SubmittingRing.withdraw`), so none is executed
twice; what is withdrawn in vain costs time only. After an interrupt, the next look does the rest.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.ipc.ring import RETURNED

from .placed_runs import PlacedRuns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from poolrt.connection.client import Client

    from .client_ring import ClientRing
    from .ring_entry import RingEntry

#: Seconds without progress after which a worker counts as held up. Threads that wait look every 0.1 s.
_HELD_UP_S: Final = 0.08
#: Seconds between two looks at most, for progress between them to show that a worker gets on.
_RECENT_S: Final = 0.3


class Progress:
    """What a worker has begun and ended, at looks of threads that wait."""

    __slots__ = ("_count", "_looked", "_since")

    def __init__(self) -> None:
        self._count = -1
        self._since = self._looked = 0.0

    def look(self, count: int, now: float) -> tuple[float, bool]:
        """Return for how many seconds at least the count is the same, and whether it has changed since a recent look."""
        before, self._looked = self._looked, now
        if count == self._count:
            return now - self._since, False
        self._count, self._since = count, now
        return 0.0, now - before < _RECENT_S


def relieve(ring: ClientRing, rings: Iterable[ClientRing], client: Client) -> None:
    """Withdraw runs of a ring whose worker is held up, if another worker gets on. A thread that waits for the ring calls this."""
    now = time.monotonic()
    stood_s, _ = ring.progress.look(ring.count, now)
    if not ring.has_waiting:
        return
    others_get_on = False
    for each in rings:
        if each is not ring and not each.lost:
            _, gets_on = each.progress.look(each.count, now)
            others_get_on |= gets_on
            if not gets_on and not each.load:
                each.probe()  # the next look shows
    if stood_s >= _HELD_UP_S and others_get_on:
        ring.note_held_up()
        client.send_nowait([Kind.HELD_UP, ring.number])  # before a thread whose run is withdrawn sends it
        ring.withdraw_waiting()


def withdraw_waiting(ring: ClientRing, taken: int, *, half: bool) -> None:
    """Withdraw the runs that wait behind so many, with the lock of their ring held; with ``half``, the older half of them."""
    waiting: list[tuple[int, PlacedRuns | RingEntry]] = []
    for each in ring.under_way:
        if isinstance(each, PlacedRuns):
            waiting += [(sequence, each) for sequence in each.find_waiting(taken)]
        elif each.sequence > taken and not each.status:
            waiting.append((each.sequence, each))
    for sequence, each in waiting[: -(-len(waiting) // 2)] if half else waiting:
        if not ring.withdraw_at(sequence):
            return  # it was begun meanwhile
        if isinstance(each, PlacedRuns):
            each.note_withdrawn(sequence)
        else:
            each.end(RETURNED)
            ring.under_way.remove(each)
