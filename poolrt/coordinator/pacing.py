"""Pacing: a client that asks for much is read slowly while another one is active, so that the other's runs do not wait.

A client that is alone is never paced, and a run never leads to a pause. A client waits in the kernel meanwhile, so it
keeps no processor busy either: with two processes of others that compute without a break, the slowest percent of a
client's runs takes some 4 ms on two processors, whatever this process does. So the long messages of clients also go to
workers and back in pieces with pauses between them: no two processes copy at full speed for long.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from typing import Final

from poolrt.workers.ipc.protocol import Kind

from .peers import Owner, Peer

#: Seconds for which a client counts as active after a message.
ACTIVE_S: Final = 1.0
#: Seconds of pause after each few frames of a long message: received at full speed, it would take a processor.
LONG_MESSAGE_PAUSE_S: Final = 0.002
#: Messages of `OCCASIONAL` kinds that a client may send at once, and a second.
OCCASIONAL_AT_ONCE: Final = 16
OCCASIONAL_A_SECOND: Final = 25
OCCASIONAL: Final = frozenset({Kind.LOAD, Kind.STATISTICS, Kind.EXPLAIN, Kind.PING})
#: After a message that has taken the loop more processor time than this, in seconds, the pause is `COSTLY_FACTOR` times as
#: long, and at most `COSTLY_PAUSE_S`.
COSTLY_S: Final = 0.0003
COSTLY_FACTOR: Final = 100
COSTLY_PAUSE_S: Final = 0.5
#: Seconds of pause for a process that connects anew after it was disconnected for an error.
REFUSED_PAUSE_S: Final = 0.05


class Pacing:
    """The pauses of clients. ``update(peer)`` is called when `Peer.paused` has changed."""

    def __init__(self, peers: Mapping[int, Peer], update: Callable[[Peer], None]) -> None:
        self._peers = peers
        self._update = update
        #: When each pause ends, the first time first, and whose it is.
        self._pauses: list[tuple[float, int, bool]] = []
        #: Owner -> when it was disconnected for an error.
        self._refused: dict[Owner, float] = {}
        #: The owner that sent a message last, and another one that did so before; when.
        self._latest: tuple[Owner, float] = ((0, 0), 0.0)
        self._before = self._latest

    def on_connected(self, peer: Peer) -> None:
        """Note a new connection."""
        if peer.owner in self._refused:
            self._pause(peer, time.monotonic(), REFUSED_PAUSE_S)

    def on_refused(self, peer: Peer) -> None:
        """Note that a client is disconnected for an error."""
        self._refused[peer.owner] = time.monotonic()

    def on_part(self, peer: Peer) -> None:
        """Note that a part of a long message has come."""
        self._pause(peer, time.monotonic(), LONG_MESSAGE_PAUSE_S)

    def on_part_sent(self, peer: Peer) -> None:
        """Note that a part of what waits for a peer was sent."""
        now = time.monotonic()
        if not peer.unsent and self._is_paced(peer):
            peer.unsent = True
            heapq.heappush(self._pauses, (now + LONG_MESSAGE_PAUSE_S, peer.number, True))

    def on_message(self, peer: Peer, kind: Kind, cost: float) -> None:
        """Note a message that took ``cost`` seconds of processor time."""
        now = time.monotonic()
        self.note_active(peer, now)
        if kind in OCCASIONAL:
            self._count_occasional(peer, now)
        if cost > COSTLY_S:
            self._pause(peer, now, min(COSTLY_PAUSE_S, COSTLY_FACTOR * cost))

    def note_active(self, peer: Peer, now: float) -> None:
        """Note that a client is active, which it is for a while."""
        if peer.owner != self._latest[0]:
            self._before = self._latest
        self._latest = peer.owner, now

    def on_message_in_vain(self, number: int) -> None:
        """Note a message of a client that did nothing; it counts as one of `OCCASIONAL`, whatever its kind is."""
        peer = self._peers.get(number)
        if peer is not None:
            self._count_occasional(peer, time.monotonic())

    def is_beside_others(self, owner: Owner) -> bool:
        """Return whether another client is active. Any thread may ask."""
        latest, before = self._latest, self._before
        return time.monotonic() - (before if latest[0] == owner else latest)[1] < ACTIVE_S

    def next_time(self, bound: float) -> float:
        """Return when the first pause ends, ``bound`` if that is sooner or there is none."""
        return min(bound, self._pauses[0][0]) if self._pauses else bound

    def end_pauses(self, now: float) -> None:
        """End the pauses that are over."""
        while self._pauses and self._pauses[0][0] <= now:
            _, number, sending = heapq.heappop(self._pauses)
            peer = self._peers.get(number)
            if peer is not None:
                if sending:
                    peer.unsent = False
                else:
                    peer.paused = False
                self._update(peer)

    @property
    def has_refused(self) -> bool:
        """Whether there is something to forget."""
        return bool(self._refused)

    def tick(self, now: float) -> None:
        """Forget what is over."""
        self._refused = {owner: when for owner, when in self._refused.items() if now - when < REFUSED_PAUSE_S}

    def _count_occasional(self, peer: Peer, now: float) -> None:
        # When so many messages would have come at the rate that is allowed.
        peer.occasional = max(peer.occasional, now) + 1 / OCCASIONAL_A_SECOND
        if peer.occasional > now + OCCASIONAL_AT_ONCE / OCCASIONAL_A_SECOND:
            self._pause(peer, now, 1 / OCCASIONAL_A_SECOND)

    def _pause(self, peer: Peer, now: float, seconds: float) -> None:
        """Do not read a client for a while if another one is active."""
        if not peer.paused and self._is_paced(peer):
            peer.paused = True
            heapq.heappush(self._pauses, (now + seconds, peer.number, False))
            self._update(peer)

    def _is_paced(self, peer: Peer) -> bool:
        """Return whether a client is beside others; for a process of the pool, whether several clients are active."""
        if peer.client:
            return self.is_beside_others(peer.owner)
        return time.monotonic() - self._before[1] < ACTIVE_S
