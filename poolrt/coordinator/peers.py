"""The connections of a coordinator, and the processes at their other ends."""

from __future__ import annotations

import os
import select
import time
from dataclasses import dataclass, field
from typing import Final

from poolrt.workers.ipc.channel import Channel

#: Bytes that wait for a client that does not read; beyond, the coordinator does not read its messages either.
HIGH_WATER: Final = 4 * 1024 * 1024
#: Longest message, in bytes, of a client that has not sent HELLO.
STRANGER_LIMIT: Final = 64 * 1024


@dataclass(slots=True, eq=False)
class Peer:
    """A connection to a client, which is ``known`` once it has sent HELLO, or to a process of the pool.

    ``pidfd`` shows that a client has exited even if its child has inherited the connection; -1 for none.
    """

    number: int
    channel: Channel
    fd: int
    client: bool
    known: bool
    pidfd: int = -1
    events: int = select.EPOLLIN
    joined: float = field(default_factory=time.monotonic)

    def wanted_events(self) -> int:
        """Return the events to watch: room to send while data wait, and messages, unless the peer does not read."""
        queued = self.channel.queued
        listening = 0 if self.client and queued > HIGH_WATER else select.EPOLLIN
        return listening | (select.EPOLLOUT if queued else 0)


def open_pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when a process exits, -1 if the kernel gives none."""
    try:
        return os.pidfd_open(pid)
    except (OSError, ValueError, OverflowError):
        return -1
