"""The connections of a coordinator, and the processes at their other ends."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable
from typing import Final, TypeAlias

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.workers.ipc.channel import Channel, Message
from poolrt.workers.ipc.protocol import CALL_BYTES

#: Bytes that wait for a client that does not read; beyond, the coordinator does not read its messages either.
HIGH_WATER: Final = 4 * 1024 * 1024
#: Bytes that wait for a client that does not read; beyond, what its functions print is left out.
TEXT_QUEUED: Final = 1024 * 1024
#: Longest message, in bytes, of a client that has not sent HELLO.
STRANGER_LIMIT: Final = 64 * 1024
#: Bytes of unfinished messages that all clients together may have: two of the longest.
UNFINISHED_BYTES: Final = 2 * CALL_BYTES
#: Seconds that may pass until more of an unfinished message comes.
UNFINISHED_S: Final = 30.0
#: What the connections of one process have in common.
Owner: TypeAlias = tuple[int, int]


@dataclass(slots=True, eq=False)
class Peer:
    """A connection to a client, which is ``known`` once it has sent HELLO, or to a process of the pool.

    ``pid`` is that of a client that runs where the coordinator can see it, else 0. ``pidfd`` shows that a client has exited
    even if its child has inherited the connection; -1 for none.
    """

    number: int
    channel: Channel
    fd: int
    client: bool
    known: bool
    pid: int = 0
    pidfd: int = -1
    events: int = select.EPOLLIN
    joined: float = field(default_factory=time.monotonic)
    #: When the last bytes of an unfinished message came.
    progressed: float = 0.0
    #: When messages of occasional kinds would have come as often as it may send them.
    occasional: float = 0.0
    #: Whether it is not read for a while, and whether nothing is sent to it for a while.
    paused: bool = False
    unsent: bool = False
    #: Characters printed by its functions that were left out since the last ones that were sent.
    left_out: int = 0

    @property
    def owner(self) -> Owner:
        """Equal for all connections of one process; a process that cannot be seen has an owner for each."""
        return self.pid, 0 if self.pid else self.number

    def bound_text(self, message: Message) -> Message | None:
        """Return a TEXT with what was left out before it, or None if the client does not read: then it is left out itself."""
        kind, request, stream, left_out, text = message
        self.left_out += left_out
        if self.channel.queued > TEXT_QUEUED:
            self.left_out += len(text)
            return None
        left_out, self.left_out = self.left_out, 0
        return [kind, request, stream, left_out, text]

    def wanted_events(self) -> int:
        """Return the events to watch: room to send while data wait, and messages, unless it pauses or does not read."""
        queued = self.channel.queued
        listening = 0 if self.paused or (self.client and queued > HIGH_WATER) else select.EPOLLIN
        return listening | (select.EPOLLOUT if queued and not self.unsent else 0)


def find_greedy(peers: Iterable[Peer], limit: int) -> list[Peer]:
    """Return the connections of the client whose unfinished messages are longest, if those of all exceed ``limit`` bytes.

    Connections of one process are one client. So many connections that send little each cost a client that sends much less
    than theirs nothing.
    """
    unfinished = [peer for peer in peers if peer.client and peer.channel.unfinished]
    if sum(peer.channel.unfinished for peer in unfinished) <= limit:
        return []
    clients: dict[Owner, list[Peer]] = {}
    for peer in unfinished:
        clients.setdefault(peer.owner, []).append(peer)
    return max(clients.values(), key=lambda own: sum(peer.channel.unfinished for peer in own))


def open_pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when a process exits, -1 if the kernel gives none."""
    try:
        return os.pidfd_open(pid)
    except (OSError, ValueError, OverflowError):
        return -1
