"""Reach a coordinator that listens at a path."""

from __future__ import annotations

import os
import socket

from poolrt.workers.channel import Channel
from poolrt.workers.protocol import Kind

from .coordinator.peers import credentials
from .errors import CoordinatorLost


def dial(path: str | os.PathLike[str]) -> socket.socket:
    """Return a socket connected to the coordinator at ``path``.

    Raises CoordinatorLost where nobody listens there, or somebody of another user.
    """
    place = os.fspath(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect(place)
        if credentials(sock)[1] != os.geteuid():
            raise CoordinatorLost(f"the coordinator at {place} belongs to another user")
    except OSError as error:
        sock.close()
        raise CoordinatorLost(f"no coordinator listens at {place}: {error.strerror}") from error
    except CoordinatorLost:
        sock.close()
        raise
    return sock


def stop(path: str | os.PathLike[str], timeout: float = 5.0) -> bool:
    """End the coordinator at ``path`` and all its processes; return whether it is gone within ``timeout`` seconds.

    Its clients get CoordinatorLost. Raises CoordinatorLost where there is none.
    """
    channel = Channel(dial(path))
    try:
        channel.send([Kind.STOP])
        return channel.wait(timeout)  # it closes its end
    finally:
        channel.close()
