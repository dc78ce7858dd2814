"""The connections of a coordinator, and who is at the other end of them."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Final

from poolrt.workers.ipc.channel import Channel

#: Bytes waiting for a client that does not read; beyond, the coordinator does not listen to it either.
HIGH_WATER: Final = 4 * 1024 * 1024
#: Longest message of a client that has not said hello, in bytes.
STRANGER_LIMIT: Final = 64 * 1024


@dataclass(slots=True, eq=False)
class Peer:
    """A connection to a client, which is ``known`` once it has said hello, or to a process of ours.

    ``pidfd`` tells of a client's death even where a child of it has inherited the connection; -1 for none.
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
        """Return what to watch for: room to send while something waits, and messages, unless it does not read ours."""
        queued = self.channel.queued
        listening = 0 if self.client and queued > HIGH_WATER else select.EPOLLIN
        return listening | (select.EPOLLOUT if queued else 0)


def credentials(sock: socket.socket) -> tuple[int, int]:
    """Return process id and user id of whoever is at the other end, as the kernel vouches for."""
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid, uid


def open_pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when a process dies, -1 where it cannot be had."""
    try:
        return os.pidfd_open(pid)
    except (OSError, ValueError, OverflowError):
        return -1
